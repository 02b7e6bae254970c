"""Files with excessive size, depth or width, or with links outside their folder: one line, within seconds."""

import hashlib
import json
import re
import struct
import time

import numpy as np
import pytest

from fuzz.files import ESCAPES, TABLES, bomb_mat, image, outside
from m3g.cli import main
from m3g.data.storage import limits
from m3g.training.runs.export import load


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", TABLES)
def test_a_table_beyond_the_limits_is_an_error_within_seconds(working_folder, error_line, case):
    make, name, message = TABLES[case]
    make(working_folder)
    start = time.process_time()
    line = error_line("train", "--table", name)
    assert time.process_time() - start < 10
    assert re.search(message, line), line
    assert not (working_folder / "runs").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (10**6, 10**6)},
        {"shape": (10**6, 10**6), "sparse": True},
        {"shape": (10, 10), "declared": 2**32 - 8},
        {"shape": (2, 2)},
    ],
    ids=["whole", "sparse", "declared", "small"],
)
def test_a_matlab_array_larger_than_its_file_is_rejected(working_folder, error_line, monkeypatch, options):
    bomb_mat("bomb.mat", **options)
    np.save("a.npy", np.ones((10, 2)))
    monkeypatch.setattr(limits, "memory_limit", lambda device: 2**31)
    start = time.process_time()
    line = error_line("train", "--views", "a.npy", "bomb.mat")
    assert time.process_time() - start < 5
    assert ("must be at most" in line) == (options["shape"] != (2, 2)), line


@pytest.mark.parametrize("side", [9_000, 12_000, 50_000])
def test_an_image_of_too_many_pixels_is_damaged(working_folder, error_line, side):
    """The smallest image is truncated. PIL warns about the second and rejects the largest."""
    line = error_line(*image(working_folder, side))
    assert "images must be readable" in line
    assert ("pixels" in line) == (side > 9_000)


def test_a_safetensors_header_of_many_tensors_is_rejected(copy, error_line):
    entry = '"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    header = ("{" + ",".join(entry.format(i) for i in range(400_000)) + "}").encode()
    content = struct.pack("<Q", len(header)) + header
    (copy / "model.safetensors").write_bytes(content)
    model = json.loads((copy / "model.json").read_text())
    model["weights"] = hashlib.sha256(content).hexdigest()
    (copy / "model.json").write_text(json.dumps(model))
    start = time.process_time()
    with pytest.raises(ValueError, match=r"its header has .* bytes"):
        load(copy)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["model.json", "results.json"])
def test_deeply_nested_json_in_a_run_is_rejected(copy, error_line, name):
    (copy / name).write_text("[" * 100_000 + "]" * 100_000)
    assert name in error_line("report", copy)


@pytest.mark.parametrize("how", ESCAPES)
def test_paths_that_leave_the_folder_of_the_table_are_rejected(working_folder, error_line, how):
    line = error_line(*outside(working_folder, how))
    assert "view 'photo' must be files below" in line
    assert "in row 3" in line
    assert "--data_options.allow_outside true" in line


def test_paths_elsewhere_can_be_allowed(working_folder):
    assert main([*outside(working_folder, ".."), "--data_options.allow_outside", "true"]) == 0
