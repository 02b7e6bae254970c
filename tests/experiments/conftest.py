"""Data sets of the experiments in miniature."""

import pytest

from experiments.miniature import write_sets


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder
