"""Validation of plain values such as numbers and names, without importing torch, which takes a second or more.

Each check raises a one-sentence `ValueError` that names the argument, the requirement and the value received.
`m3g._checks` re-exports these functions and adds those for tensors.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

# Python types by `kind` of a NumPy dtype.
_TYPES: dict[str, type[bool | int | float]] = {"b": bool, "i": int, "u": int, "f": float}
# Names used in other programs, or related names, and the names that error messages suggest instead.
SYNONYMS = {
    "backbone": "encoder",
    "batch": "batch_size",
    "bs": "batch_size",
    "byol": "byol-pwe",
    "cca": "mcca",
    "clip": "infonce-pwe",
    "dataset": "data",
    "digits": "multiple-features",
    "dim": "embedding_size",
    "epsilon": "temperature",
    "gpu": "devices",
    "gpus": "devices",
    "infonce": "infonce-pwe",
    "lr": "learning_rate",
    "max_epochs": "epochs",
    "mfeat": "multiple-features",
    "min_lr": "min_learning_rate",
    "model": "encoder",
    "num_epochs": "epochs",
    "output": "out",
    "steps": "max_steps",
    "tau": "temperature",
    "temperature": "epsilon",
    "warmup": "warmup_epochs",
    "wd": "weight_decay",
    "workers": "num_workers",
}


def plain(value: Any) -> object:
    """Return the Python number or bool of a NumPy scalar or array without axes; other values are unchanged.

    Example:
        >>> import numpy as np
        >>> plain(np.int64(3)), plain(np.array(True)), plain("a")
        (3, True, 'a')
    """
    if type(value) in (bool, int, float):
        return value
    # torch.dtype has no `kind`, so tensors are unchanged: a conversion would detach them from the autograd graph.
    kind = _TYPES.get(getattr(getattr(value, "dtype", None), "kind", ""))
    return kind(value) if kind is not None and getattr(value, "shape", None) == () else value


def is_whole(value: object) -> bool:
    """Return whether a plain value is an int but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return the representation of a value on one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _finite(value: object) -> float | None:
    """Return a value as a float if it is a number that is finite as a float, otherwise None."""
    value = plain(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return float(value) if isinstance(value, int) and is_whole(value) and abs(value) < 2**1023 else None


def positive(name: str, value: float) -> float:
    """Return the value as a float if it is a positive finite number."""
    number = _finite(value)
    if number is not None and number > 0:
        return number
    if not isinstance(plain(value), (int, float)) or isinstance(plain(value), bool):
        raise ValueError(f"{name} must be a positive number, got {type(value).__name__} {shown(value)}.")
    raise ValueError(f"{name} must be a positive finite number, got {shown(value)}.")


def positive_int(name: str, value: int) -> int:
    """Return the value if it is a whole number of at least 1."""
    return whole(name, value, least=1)


def whole(name: str, value: int, *, least: int = 0) -> int:
    """Return the value if it is a whole number of at least `least`."""
    number = plain(value)
    if not isinstance(number, int) or not is_whole(number) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {shown(value)}.")
    return number


def finite(name: str, value: float) -> float:
    """Return the value as a float if it is a finite number."""
    number = _finite(value)
    if number is None:
        raise ValueError(f"{name} must be a finite number, got {shown(value)}.")
    return number


def non_negative(name: str, value: float) -> float:
    """Return the value as a float if it is a finite number of at least 0."""
    number = _finite(value)
    if number is None or number < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, got {shown(value)}.")
    return number


def fraction(name: str, value: float) -> float:
    """Return the value as a float if it is at least 0 and less than 1."""
    number = _finite(value)
    if number is None or not 0 <= number < 1:
        raise ValueError(f"{name} must be a number from 0 (included) to 1 (excluded), got {shown(value)}.")
    return number


def seed(name: str, value: int) -> int:
    """Return the value if it is a seed, a whole number from 0 to 2**63 - 1."""
    number = plain(value)
    if not isinstance(number, int) or not is_whole(number) or not 0 <= number < 2**63:
        raise ValueError(f"{name} must be a whole number from 0 to 2**63 - 1, got {shown(value)}.")
    return number


def flag(name: str, value: bool) -> bool:
    """Return the value if it is True or False."""
    choice = plain(value)
    if not isinstance(choice, bool):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")
    return choice


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """Return the value if it is one of the known names; otherwise raise an error that suggests a similar name."""
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}{suggestion(value, known)}"
        )
    return value


def existing(name: str, path: str | Path) -> Path:
    """Return the path if it exists."""
    if not Path(path).exists():
        raise ValueError(f"{name} must be a file or folder that exists, got {str(path)!r}: check the path.")
    return Path(path)


def among(what: str, got: Iterable[str], known: Iterable[str]) -> None:
    """Reject names that are not known; the error suggests a similar name."""
    known = list(known)
    unknown = sorted(set(map(str, got)) - set(known))
    if unknown:
        raise ValueError(
            f"{what} must be among {', '.join(known)}, got {', '.join(unknown)}{suggestion(unknown[0], known)}"
        )


def suggestion(got: object, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name, with a synonym or the most similar known name.

    Example:
        >>> suggestion("infonce-pw", ["m3g", "infonce-pwe"]), suggestion("x", ["m3g"])
        (': did you mean infonce-pwe?', '.')
        >>> suggestion("--lr", ["--loop.epochs", "--optim.learning_rate"])
        ': did you mean --optim.learning_rate?'
        >>> suggestion("digits", ["arrays", "multiple-features"])
        ': did you mean multiple-features?'
    """
    names = list(known)
    ends = {name.lstrip("-").rpartition(".")[2].lower(): name for name in reversed(names)}
    word = str(got).lstrip("-").rpartition(".")[2].replace("-", "_").lower()
    similar = difflib.get_close_matches(str(got), names, n=1, cutoff=0.9)
    similar += [ends[other] for other in (word, SYNONYMS.get(word)) if other in ends]
    similar += difflib.get_close_matches(str(got), names, n=1, cutoff=0.7)
    return f": did you mean {similar[0]}?" if similar else "."


def fits(what: str, num_bytes: float, limit: float, instead: str) -> None:
    """Reject a size that exceeds a limit, both in bytes; `instead` is the alternative that the error suggests."""
    if num_bytes > limit:
        raise ValueError(f"{what} must be at most {limit / 2**30:.1f} GiB, got {num_bytes / 2**30:.1f} GiB: {instead}.")


def printable(name: str, words: Iterable[str]) -> None:
    """Reject words with control characters, which a terminal would interpret."""
    wrong = next((word for word in words if not word.isprintable()), None)
    if wrong is not None:
        raise ValueError(f"{name} must be printable, got {wrong!r}.")


def extra(module: str, name: str) -> ModuleType:
    """Import a module that the optional extra `name` installs; the error gives the command."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is not installed: pip install 'm3g[{name}]'.") from error
