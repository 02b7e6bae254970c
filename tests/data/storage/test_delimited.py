"""Separators, indices and encodings of delimited files."""

import numpy as np
import pandas as pd
import pytest
import torch

from frames import FRAME, N
from m3g.data import Arrays, Objects


@pytest.mark.parametrize(
    ("name", "encoding", "message"),
    [
        ("t.csv", "latin-1", "row 17 is not UTF-8 .byte 0xe8., probably Latin-1: .* -f WINDOWS-1252 -t UTF-8 t.csv"),
        ("t.jsonl", "latin-1", "row 17 is not UTF-8"),
        ("t.csv", "utf-16", "its first line is not UTF-8, probably UTF-16: .* iconv -f UTF-16"),
    ],
)  # fmt: skip
def test_another_encoding_is_an_error_with_row_and_remedy(tmp_path, name, encoding, message):
    frame = FRAME.assign(caption=["plain\nlines" if i < 17 else f"crème {i}" for i in range(N)])
    write = {"t.csv": frame.to_csv, "t.jsonl": lambda path, **options: path.write_text(
        frame.to_json(orient="records", lines=True, force_ascii=False), encoding="latin-1")}[name]  # fmt: skip
    write(tmp_path / name, encoding=encoding)
    with pytest.raises(ValueError, match=message):
        Objects(tmp_path / name)


def test_files_of_arrays_with_an_index_and_decimal_commas(tmp_path):
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)).round(4), columns=list("xyz"))
    numbers.to_csv(tmp_path / "a.csv")
    numbers.to_csv(tmp_path / "b.csv", sep=";", decimal=",", index=False)
    numbers.to_csv(tmp_path / "c.tsv", sep="\t", index=False)
    data = Arrays([tmp_path / name for name in ("a.csv", "b.csv", "c.tsv")])
    views = data.arrays("train")[0]
    assert torch.equal(views[0], views[1])
    assert torch.equal(views[0], views[2])
    assert len(data.notes) == 1
    assert "is unnamed and numbers the rows; it is not used" in data.notes[0]
    (tmp_path / "a.csv").write_bytes("name\nMüller\n".encode("latin-1"))
    with pytest.raises(ValueError, match="row 0 is not UTF-8"):
        Arrays([tmp_path / "a.csv", tmp_path / "b.csv"])
