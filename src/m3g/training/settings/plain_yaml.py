"""YAML of plain values: numbers, strings, lists and mappings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, TypeAlias

import yaml

# Values in a JSON or YAML file.
Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
MAX_DEPTH = 20  # maximum number of nested lists and mappings


class _Loader(yaml.SafeLoader):
    """Loader that parses 1e-3 as a number and 2020-01-01 as a string, unlike YAML 1.1."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: str | Path) -> Plain:
    """Return the content of a YAML file of plain values."""
    try:
        return plain_yaml(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} must be YAML, but it cannot be read: {' '.join(str(error).split())}.") from error


def plain_yaml(text: str) -> Plain:
    """Return the value of a YAML text: numbers, strings, booleans, null, and lists and mappings of limited depth."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):  # a few lines of aliases can expand to billions of values
            raise ValueError("it has an alias (*name): write the value out")
    value: Plain = yaml.load(text, _Loader)
    return value
