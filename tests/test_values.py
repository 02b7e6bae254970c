"""Checks of numbers and names: errors state the argument, the requirement and the value."""

import numpy as np
import pytest

from m3g import _values


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (_values.positive, 0.0, "must be a positive finite number, got 0.0"),
        (_values.positive, float("inf"), "must be a positive finite number, got inf"),
        (_values.positive, True, "must be a positive number, got bool True"),
        (_values.positive_int, 2.0, "must be a whole number of at least 1, got 2.0"),
        (_values.whole, True, "must be a whole number of at least 0, got True"),
        (_values.non_negative, -1, "must be a finite number of at least 0, got -1"),
        (_values.fraction, 1.0, "must be a number from 0 .included. to 1 .excluded., got 1.0"),
        (_values.seed, 2**63, "must be a whole number from 0 to"),
    ],
)
def test_invalid_numbers_are_errors(check, value, message):
    with pytest.raises(ValueError, match=f"^x {message}"):
        check("x", value)


def test_valid_numbers_are_returned():
    assert _values.positive("x", 2) == 2.0
    assert _values.fraction("x", 0) == 0.0
    assert type(_values.whole("x", np.int64(0))) is int
    assert _values.seed("x", 2**63 - 1) == 2**63 - 1


def test_unknown_names_are_errors_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"must be one of 'cat', 'dog', got 'dogg': did you mean dog\?"):
        _values.one_of("kind", "dogg", ["dog", "cat"])
    with pytest.raises(ValueError, match=r"must be among width, depth, got lr\.$"):
        _values.among("options", ["width", "lr"], ["width", "depth"])
    _values.among("options", ["width"], ["width", "depth"])


def test_a_missing_package_is_an_error_that_names_the_extra():
    with pytest.raises(ImportError, match=r"no_such_package is not installed: pip install 'm3g\[train\]'"):
        _values.extra("no_such_package", "train")
    assert _values.extra("json", "train").loads("1") == 1
