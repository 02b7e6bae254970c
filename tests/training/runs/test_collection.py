"""Embeddings of a run are kept until the network or the data change."""

import os
import shutil

import torch

from m3g.training.runs import collection as module
from m3g.training.runs.folder import Run


def test_embeddings_are_cached_until_network_or_data_change(coloured, tmp_path, monkeypatch):
    shutil.copytree(coloured, tmp_path / "all")
    run = Run(tmp_path / "all" / "run")
    (run.path / module.FILE).unlink(missing_ok=True)
    run.data_root = tmp_path / "all"
    calls = []
    monkeypatch.setattr(
        module, "embed_run", lambda *args, embed=module.embed_run, **more: calls.append(1) or embed(*args, **more)
    )
    first = module.collection(run)
    again = module.collection(run)
    assert len(calls) == 1
    assert torch.equal(first.embeddings, again.embeddings)
    assert (again.split, again.view_names) == (first.split, first.view_names)
    os.utime(tmp_path / "all" / "7.png", (1, 1))  # a picture changes
    module.collection(run)
    assert len(calls) == 2
    (run.path / module.FILE).write_bytes((run.path / module.FILE).read_bytes()[:500])  # damaged
    module.collection(run)
    assert len(calls) == 3
    changed = Run(run.path)
    changed.data_root = run.data_root
    changed.model.write_text(changed.model.read_text().replace('"format"', ' "format"'))  # another network
    module.collection(changed)
    assert len(calls) == 4
