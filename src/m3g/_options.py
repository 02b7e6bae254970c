"""Validation of options from settings files and command lines against type annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from m3g._values import is_whole, plain

# Options by name, as in a settings file: arguments of a class or function, which `typed` compares with the annotations.
Options: TypeAlias = Mapping[str, Any]
Annotation: TypeAlias = object  # `int`, `int | None`, `Literal["a", "b"]`, ...


class Processor(TypedDict, total=False):
    """Preprocessing of a pretrained model.

    Attributes:
        model: name or folder of the model.
        tokenizer: a tokenizer of the package `tokenizers`, as JSON.
        pad: index of the padding token.
        longest: maximum number of tokens.
        size: side length of images in pixels.
        mean, std: mean and standard deviation of the channels of images with values from 0 to 1.
        rate: samples per second of sounds.
        normalize: whether sounds are standardised.
    """

    model: str
    tokenizer: str
    pad: int
    longest: int
    size: int
    mean: list[float]
    std: list[float]
    rate: int
    normalize: bool


def typed(function: Callable[..., object], options: Options, *, prefix: str = "") -> None:
    """Reject options whose types do not match the annotations of a function or of a class's constructor.

    Example:
        >>> def f(size: int, names: Sequence[str] | None = None): ...
        >>> typed(f, {"size": 3, "names": ["a"]})
        >>> typed(f, {"names": "a"})
        Traceback (most recent call last):
        ValueError: names must be a list of strings or null, got 'a'.
    """
    hints = get_type_hints(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    for name, value in options.items():
        if name in hints and not matches(value, hints[name]):
            raise ValueError(f"{prefix}{name} must be {in_words(hints[name])}, got {value!r}.")


_WORDS: dict[Annotation, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    NoneType: "null",
    dict: "a mapping of names to values",
    Mapping: "a mapping of names to values",
}


def matches(value: object, hint: Annotation) -> bool:
    """Return whether a plain value matches an annotation."""
    origin, inner, value = get_origin(hint), get_args(hint), plain(value)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(matches(value, part) for part in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, (list, tuple)) and len(value) == len(inner) and all(map(matches, value, inner))
    if origin is Sequence:
        return isinstance(value, (list, tuple)) and all(matches(part, inner[0]) for part in value)
    kind = Mapping if is_typeddict(hint) else origin or hint
    assert isinstance(kind, type), hint
    if kind in (int, float):
        return is_whole(value) or (isinstance(value, kind) and not isinstance(value, bool))
    return isinstance(value, kind)


def in_words(hint: Annotation) -> str:
    """Describe an annotation in words, without the names of Python types."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # Types that a settings file cannot contain, such as functions and generators, are omitted.
        parts = [
            part for part in inner if part in _WORDS or is_typeddict(part) or get_origin(part) not in (None, Callable)
        ]
        return " or ".join(map(in_words, parts))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a list of {len(inner)} numbers"
    if origin is Sequence:
        element = in_words(inner[0]).removeprefix("a ")
        for noun in ("string", "number", "mapping"):
            element = element.replace(noun, f"{noun}s")
        return f"a list of {element}"
    return _WORDS.get(Mapping if is_typeddict(hint) else origin or hint, str(hint))
