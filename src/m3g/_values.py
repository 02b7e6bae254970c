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

# Names of settings in other programs, or of related settings, and the names that error messages suggest instead.
SYNONYMS = {
    "backbone": "encoder",
    "batch": "batch_size",
    "bs": "batch_size",
    "byol": "byol-pwe",
    "cca": "mcca",
    "clip": "infonce-pwe",
    "dataset": "data",
    "dim": "embedding_size",
    "epsilon": "temperature",
    "gpu": "devices",
    "gpus": "devices",
    "infonce": "infonce-pwe",
    "lr": "learning_rate",
    "max_epochs": "epochs",
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


def _finite(value: object) -> bool:
    """Return whether a value is a number that is finite as a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**1023


def positive(name: str, value: float) -> float:
    """Return the value as a float if it is a positive finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{name} must be a positive number, got {type(value).__name__} {value!r}.")
    if not (_finite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")
    return float(value)


def positive_int(name: str, value: int) -> int:
    """Return the value if it is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return value


def non_negative(name: str, value: float) -> float:
    """Return the value as a float if it is a finite number of at least 0."""
    if not (_finite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.")
    return float(value)


def fraction(name: str, value: float) -> float:
    """Return the value as a float if it is at least 0 and less than 1."""
    if not (_finite(value) and 0 <= value < 1):
        raise ValueError(f"{name} must be a number from 0 (included) to 1 (excluded), got {value!r}.")
    return float(value)


def seed(name: str, value: int) -> int:
    """Return the value if it is a seed, a whole number from 0 to 2**63 - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{name} must be a whole number from 0 to 2**63 - 1, got {value!r}.")
    return value


def one_of(name: str, value: object, known: Iterable[str]) -> str:
    """Return the value if it is one of the known names; otherwise raise an error that suggests a similar name."""
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{suggestion(value, known)}"
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
