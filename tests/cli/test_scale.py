"""The commands of docs/scale.md in miniature: two processes, few steps, the built-in digits."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import forked

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SMALL = ["--loop.max_steps", "2", "--loop.evaluate_every", "0", "--loop.accelerator", "cpu"]
SMALL += ["--encoder_options.width", "16", "--heads.hidden", "16", "--data_options.batch_size", "12"]
SMALL += ["--data_options.views", "[fourier, zernike, karhunen]"]


# Stand-ins for the programs of a cluster; torchrun only records its arguments.
PROGRAMS = {"scontrol": "echo node1; echo node2", "srun": 'exec "$@"', "torchrun": 'printf "%s\\n" "$@" > launch.txt'}


def scripts():
    return re.findall(r"^```bash\n(.*?)^```$", PAGE, flags=re.M | re.S)


def launches(script, folder):
    """Return the options of torchrun and the arguments after `-m m3g` when a script runs in a folder."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-eu"], input=script, text=True, cwd=folder, env={**os.environ, **job}, check=True)
    words = (folder / "launch.txt").read_text().splitlines()
    at = words.index("-m")
    assert words[at + 1] == "m3g"
    return words[:at], words[at + 2 :]


WITH_TORCHRUN = [script for script in scripts() if "torchrun " in script]


@pytest.mark.slow
@pytest.mark.parametrize("script", WITH_TORCHRUN, ids=range(len(WITH_TORCHRUN)))
def test_commands_of_several_processes_train(tmp_path, tmp_path_factory, script):
    _, words = launches(script, tmp_path)
    chunks = ["--loop.chunk_size", "5"] if "--loop.chunk_size" in words else []
    code, output = forked.torchrun(
        [*words, *SMALL, *chunks, "--out", "run"], (tmp_path, tmp_path), tmp_path_factory.mktemp("logs")
    )
    assert code == 0, output
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_requeued_job_continues(tmp_path, tmp_path_factory):
    (script,) = (script for script in scripts() if "#SBATCH --requeue" in script)
    _, words = launches(script, tmp_path)
    small = [*SMALL, "--loop.checkpoint_every", "1"]
    small[small.index("--loop.max_steps") + 1] = "40"
    group = (tmp_path, tmp_path)
    code, _ = forked.torchrun([*words, *small], group, tmp_path_factory.mktemp("logs"), killed=(3, 0.0))
    assert code != 0
    _, words = launches(script, tmp_path)
    code, output = forked.torchrun(words, group, tmp_path_factory.mktemp("logs"))
    assert code == 0, output
    assert "continuing after step" in output
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_torchrun_parses_the_launch_commands(tmp_path):
    from torch.distributed.run import parse_args

    assert len(WITH_TORCHRUN) == 4
    for script in WITH_TORCHRUN:
        words, _ = launches(script, tmp_path)
        assert int(parse_args([*words, "-m", "m3g"]).nproc_per_node) == 8


def test_scripts_are_shell():
    for script in scripts():
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
