"""A table of objects of every kind."""

import pytest

from animals import rows, write_csv


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("animals")
    content = rows(folder, 40)
    write_csv(folder, content)
    return folder, content
