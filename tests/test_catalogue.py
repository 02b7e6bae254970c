"""Options parsed from source files equal the arguments of the classes, and listing them imports no heavy library."""

import inspect
import subprocess
import sys

import pytest

from m3g import _catalogue as catalogue
from m3g.data.tables.reader import Reader

ENTRIES = [
    pytest.param(entry, id=f"{group}-{name}")
    for group in ("LOSSES", "ENCODERS", "DATA")
    for name, entry in getattr(catalogue, group).items()
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_options_are_the_arguments_of_the_constructor(entry):
    parameters = inspect.signature(entry.load()).parameters
    assert entry.options() == list(parameters)
    assert entry.headline() == inspect.getdoc(entry.load()).splitlines()[0]


def test_a_view_accepts_the_options_of_its_readers():
    readers = [entry.load() for entry in catalogue.READERS.values()]
    assert all(issubclass(reader, Reader) for reader in readers)
    assert [reader.kind for reader in readers] == list(catalogue.READERS)
    assert {word for reader in readers for word in reader.options} | {"kind", "columns"} == set(
        catalogue.reading_options()
    )


def test_an_entry_may_be_any_function():
    def factory(width, *, depth=2): ...

    entry = catalogue.Entry(factory)
    assert entry.load() is factory
    assert entry.options() == ["width", "depth"]


def test_no_heavy_library_is_imported_to_list_options():
    program = (
        "import sys; from m3g import _catalogue as c; c.reading_options(); "
        "[e.options() for g in (c.LOSSES, c.ENCODERS, c.DATA) for e in g.values()]; "
        "print(sorted({'torch', 'numpy', 'lightning'} & set(sys.modules)))"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"
