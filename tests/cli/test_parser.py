"""Help and misspelt options."""

import subprocess
import sys

import pytest

from m3g.cli import main
from m3g.training.settings.config import Config, flat


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["train", "--vews", "a.npy"]], ids=" ".join)
def test_help_and_a_misspelt_option_take_half_a_second_at_most(words):
    """Processor time beyond that of starting Python, in the best of ten attempts, because the load increases it."""
    resource = pytest.importorskip("resource", reason="Unix only")

    def seconds(*command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    startup = min(seconds("-c", "pass") for _ in range(3))
    assert any(seconds("-m", "m3g", *words) - startup < 0.5 for _ in range(10))


def test_the_help_of_train_explains_every_setting(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    names = [*flat(Config().to_dict()), "data_options.NAME", "loss_options.NAME", "view.NAME.OPTION"]
    assert [name for name in names if f"--{name} VALUE" not in shown] == []
