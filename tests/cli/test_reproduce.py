"""`m3g reproduce`: its names, and a folder of data that does not exist."""

import pytest

from m3g.cli import main
from m3g.cli.reproduce import NAMES


def test_the_help_lists_every_experiment(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    words = capsys.readouterr().out.split()
    assert set(NAMES) <= set(words)


def test_a_missing_folder_and_an_unknown_name_are_reported(error_line):
    assert "--data must be a folder that exists, got 'nowhere'" in error_line("reproduce", "views", "--data", "nowhere")
    assert "did you mean views?" in error_line("reproduce", "view")
