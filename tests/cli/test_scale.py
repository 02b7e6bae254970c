"""The commands of docs/scale.md in miniature: two processes, few steps, the built-in digits."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import forked

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SMALL = ["--loop.max_steps", "2", "--loop.evaluate_every", "0", "--loop.accelerator", "cpu"]
SMALL += ["--encoder_options.width", "16", "--heads.hidden", "16", "--data_options.batch_size", "12"]
SMALL += ["--data_options.views", "[fourier, zernike, karhunen]"]


def scripts():
    return re.findall(r"^```bash\n(.*?)^```$", PAGE, flags=re.M | re.S)


def commands():
    """Return the arguments after `-m m3g` of every torchrun command, and the number of nodes."""
    for script in scripts():
        for line in script.replace("\\\n", " ").splitlines():
            if "torchrun " in line:
                launch, _, words = line.partition(" -m m3g ")
                yield pytest.param(shlex.split(words), id=words), launch


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_commands_of_several_processes_train(tmp_path, tmp_path_factory, words):
    chunks = ["--loop.chunk_size", "5"] if "--loop.chunk_size" in words else []
    out = ["--out", "run"]
    code, output = forked.torchrun(
        [*words, *SMALL, *chunks, *out], (tmp_path, tmp_path), tmp_path_factory.mktemp("logs")
    )
    assert code == 0, output
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_torchrun_parses_the_launch_commands():
    from torch.distributed.run import parse_args

    launches = [launch for _, launch in commands()]
    assert len(launches) == 4
    for launch in launches:
        words = re.sub(r'"[^"]*"', "value", launch.split("torchrun ")[1])
        options = parse_args([*shlex.split(words), "-m", "m3g"])
        assert int(options.nproc_per_node) == 8


def test_scripts_are_shell():
    for script in scripts():
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
