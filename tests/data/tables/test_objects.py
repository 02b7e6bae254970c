"""Tables of objects: every format gives the same views, and every kind is read correctly."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from animals import OPTIONS, write_csv
from m3g.data import Arrays, Objects


def test_kinds_are_inferred_and_empty_cells_are_missing(animals):
    folder, content = animals
    data = Objects(folder / "objects.csv", **OPTIONS)
    assert dict(zip(data.view_names, data.view_kinds)) == {
        "photo": "image", "sound": "audio", "caption": "text", "table": "table", "vector": "vector"
    }  # fmt: skip
    shapes = dict(zip(data.view_names, data.view_shapes))
    assert shapes["photo"] == (3, 20, 20)
    assert shapes["vector"] == (4,)
    assert shapes["table"] == (1 + 1 + 2,)  # age, whether it is empty, two colours
    batch = next(iter(data.train_dataloader()))
    assert [view.dtype for view in batch["views"]] == [torch.float32] * 2 + [torch.uint8] + [torch.float32] * 2
    assert bool(torch.isfinite(torch.cat([view.float().flatten() for view in batch["views"]])).all())
    for position, row in enumerate(batch["index"].tolist()):
        for l, name in enumerate(("photo", "sound", "caption")):
            assert bool(batch["mask"][l, position]) == (content[row][name] is not None)
            if content[row][name] is None:
                assert int(batch["views"][l][position].count_nonzero()) == 0
            elif name == "caption":
                text = content[row][name].encode()
                assert bytes(batch["views"][2][position][: len(text)].tolist()) == text


def test_every_format_gives_the_same_views(animals, tmp_path):
    folder, content = animals
    expected = Objects(folder / "objects.csv", **OPTIONS)
    (folder / "objects.jsonl").write_text("\n".join(json.dumps(row) for row in content))
    table = pa.Table.from_pylist(content)
    pa.parquet.write_table(table, folder / "objects.parquet", row_group_size=7)
    (folder / "shards").mkdir()
    for name in ("photo", "sound"):  # paths are relative to the folder of shards
        for row in content:
            if row[name] is not None and not (folder / "shards" / row[name]).exists():
                (folder / "shards" / row[name]).symlink_to(folder / row[name])
    pa.parquet.write_table(table.slice(0, 25), folder / "shards" / "0.parquet")
    pa.parquet.write_table(table.slice(25), folder / "shards" / "1.parquet")
    for name in ("objects.jsonl", "objects.parquet", "shards"):
        actual = Objects(folder / name, allow_outside=name == "shards", **OPTIONS)  # the files of the shards are links
        assert actual.view_names == expected.view_names, name
        for split in ("train", "test"):
            ours, theirs = actual.arrays(split), expected.arrays(split)
            assert torch.equal(ours[1], theirs[1])
            for l, (a, b) in enumerate(zip(ours[0], theirs[0])):
                torch.testing.assert_close(a, b, msg=f"{name} view {l}")


def _save_like_datasets(table, folder):
    """What `datasets.Dataset.save_to_disk` writes: one stream of Arrow, and a list of such files."""
    folder.mkdir(parents=True)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))


def test_a_datasets_folder_contains_its_files_and_splits(animals, tmp_path):
    folder, content = animals
    kept = [row for row in content if row["photo"] and row["sound"]]
    full = [
        {
            "photo": {"bytes": (folder / row["photo"]).read_bytes(), "path": None},
            "sound": {"bytes": (folder / row["sound"]).read_bytes(), "path": None},
            "caption": row["caption"],
        }
        for row in kept
    ]
    for split, part in (("train", full[:20]), ("validation", full[20:24]), ("test", full[24:])):
        _save_like_datasets(pa.Table.from_pylist(part), tmp_path / "saved" / split)
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation", "test"]}))
    data = Objects(tmp_path / "saved", batch_size=4, encoder="text")
    assert [data.num_rows(split) for split in ("train", "val", "test")] == [20, 4, len(full) - 24]
    for file, content, message in (
        ("train/state.json", {}, "state.json must have a list '_data_files'"),
        ("train/state.json", {"_data_files": ["data.arrow"]}, "state.json must have a filename for every file"),
        ("dataset_dict.json", ["train"], "dataset_dict.json must have a list 'splits'"),
        ("dataset_dict.json", {"splits": ["../saved"]}, "dataset_dict.json refers to folders outside its folder"),
    ):
        shutil.copytree(tmp_path / "saved", tmp_path / "copy", dirs_exist_ok=True)
        (tmp_path / "copy" / file).write_text(json.dumps(content))
        with pytest.raises(ValueError, match=f"table must be a table that can be read, got .*{message}"):
            Objects(tmp_path / "copy")
    assert data.view_kinds == ["image", "audio", "text"]
    by_path = Objects(
        write_csv(folder, [{key: row[key] for key in ("photo", "sound", "caption")} for row in kept], "some.csv"),
        view={"sound": {"seconds": data.inputs[1]["seconds"]}}, batch_size=4, val=0.0, test=0.0, encoder="text",
    )  # fmt: skip
    for ours, theirs in zip(data.arrays("train")[0], by_path.arrays("train")[0]):
        torch.testing.assert_close(ours, theirs[:20])


def test_views_are_named_and_split_by_options(animals):
    folder, _ = animals
    view = {"body": {"columns": "age"}, "coat": {"kind": "table", "columns": ["colour"]}, "caption": {"length": 10}}
    data = Objects(folder / "objects.csv", view={**view, "body": {"kind": "table", "columns": "age"}}, **OPTIONS)
    assert {"body", "coat"} <= set(data.view_names)
    assert "table" not in data.view_names
    assert data.view_shapes[data.view_names.index("caption")] == (10,)


def test_a_single_file_of_arrays_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="k >= 2 files"):
        Arrays([tmp_path / "a.npy"])


@pytest.mark.parametrize(("number", "expected"), [(60, 42), (200, 64)])
def test_a_batch_contains_all_training_rows_if_there_are_few(tmp_path, monkeypatch, number, expected):
    table = write_csv(tmp_path, [{"text": f"row {i} of some", "n": i * i} for i in range(number)])
    data = Objects(table)
    assert data.batch_size == expected
    assert data.sampler().num_steps >= 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert data.batch_size == min(64, int(0.7 * number) // 2)
    assert Objects(table, batch_size=30).batch_size == 30
    with pytest.raises(ValueError, match="batch_size must be at most"):
        Objects(table, batch_size=500).sampler()
