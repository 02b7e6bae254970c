"""Variables of Slurm do not change a run."""

import os
import re
import warnings

from fixtures import QUICK
from m3g.cli import main


def test_variables_of_slurm_do_not_change_a_run(finished, tmp_path, monkeypatch, capfd):
    """Even with `srun` installed and in a job of several tasks, the command trains in one process, as without Slurm."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}{os.pathsep}{os.environ['PATH']}")
    job = {"JOB_ID": 7, "JOB_NAME": "train", "NTASKS": 4, "PROCID": 3, "LOCALID": 3, "NODEID": 1, "NNODES": 2}
    for name, value in {**job, "NTASKS_PER_NODE": 2, "JOB_NODELIST": "node[1-2]", "NODELIST": "node[1-2]"}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    views = [str(finished / "a.npy"), str(finished / "b.npy"), "--data_options.batch_size", "20"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["train", *QUICK, "--views", *views, "--out", "run"]) == 0
    output = capfd.readouterr()
    assert output.err == ""
    assert not re.search("srun|slurm", output.out, re.IGNORECASE)
    for name in ("model.safetensors", "config.yaml", "metrics.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / "run" / name).read_bytes()
