"""Options of files and command lines are compared with annotations."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from m3g._options import Processor, in_words, matches, typed


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (3, float, True),
        ("3", float, False),
        (None, int | None, True),
        ([0.9, 0.95], tuple[float, float], True),
        ([0.9], tuple[float, float], False),
        (["a"], Sequence[str], True),
        ("a", Sequence[str], False),
        ({"pad": 0}, Processor, True),
        ([], Mapping[str, Any], False),
        ("b", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
    ],
)
def test_values_are_compared_with_annotations(value, hint, expected):
    assert matches(value, hint) is expected


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | None, "a whole number or null"),
        (Sequence[float] | None, "a list of numbers or null"),
        (Literal["a", "b"], "'a' or 'b'"),
        (Processor, "a mapping of names to values"),
        (Processor | None, "a mapping of names to values or null"),
    ],
)
def test_annotations_are_described_without_the_names_of_types(hint, words):
    assert in_words(hint) == words


def test_the_message_names_the_option_with_its_prefix():
    def function(size: int = 3): ...

    with pytest.raises(ValueError, match=r"^view\.a\.size must be a whole number, got 'x'\.$"):
        typed(function, {"size": "x"}, prefix="view.a.")
    typed(function, {"other": "x"})  # unknown names are reported elsewhere
