"""YAML of plain values only: numbers, words, lists and mappings, as settings are made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 20  # levels of lists and mappings in a file of settings


class _Loader(yaml.SafeLoader):
    """PyYAML takes 1e-3 for a word, as YAML 1.1 does; here it is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: str | Path) -> Any:
    """The content of a YAML file: plain values only."""
    try:
        return plain_yaml(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} must be YAML, but it cannot be read: {' '.join(str(error).split())}.") from error


def plain_yaml(text: str) -> Any:
    """A value in YAML: numbers, words, lists and mappings, not nested deeper than settings ever are."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        if isinstance(event, yaml.AliasEvent):  # a few lines of them can stand for billions of values
            raise ValueError("it has an alias (*name): write the value out")
    return yaml.load(text, _Loader)
