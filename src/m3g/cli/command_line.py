"""Conversion of a command line into plain settings, which `Config.from_dict` validates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

import yaml

from m3g._options import Options
from m3g.training.settings.config import Config, flat
from m3g.training.settings.plain_yaml import plain_yaml, read_yaml


class ParsedArguments(NamedTuple):
    """Arguments of a command line, split into settings and others.

    Attributes:
        settings: nested plain values, not validated.
        origin: by dotted name, the file from which a setting was read; settings of the command line are omitted.
        others: the arguments that are not settings.
    """

    settings: dict[str, Any]
    origin: dict[str, str]
    others: list[str]


def read_settings(arguments: list[str], *, ignored: tuple[str, ...] = ()) -> ParsedArguments:
    """Split a command line into settings and other arguments.

    `--a VALUE` sets a single setting a. If a is a group of settings, `--a.b.c VALUE` sets a.b.c, and `--a {b: VALUE}`
    replaces the group. `--a=VALUE` is the same as `--a VALUE`. `--config FILE` applies the settings in the file, except
    the names in `ignored`. Later settings replace earlier ones. A setting that is a list of strings consumes all
    arguments up to the next option; if it is repeated, its values are joined.

    Example:
        >>> given = read_settings(["--out", "run", "--loss_options.solver.rank", "512", "--loop.epochs=3"])
        >>> given.settings, given.others
        ({'loss_options': {'solver': {'rank': 512}}, 'loop': {'epochs': 3}}, ['--out', 'run'])
    """
    given = ParsedArguments({}, {}, [])
    rest = list(arguments)
    lists: dict[str, list[str]] = {}
    hints = get_type_hints(Config)
    groups = {name for name, hint in hints.items() if dataclasses.is_dataclass(hint) or get_origin(hint) is dict}
    list_settings = {name for name, hint in hints.items() if get_origin(hint) is Sequence}
    while rest:
        argument = rest.pop(0)
        option, equals, value = argument.partition("=")
        path = option.removeprefix("--").split(".")
        single = path[0] in groups and (value if equals else "".join(rest[:1])).startswith("{")
        known = path[0] in (*hints, "config") and (single or (len(path) > 1) == (path[0] in groups))
        if not option.startswith("--") or not known:
            given.others.append(argument)
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ValueError(f"{option} must have a value, got none.")
            value = rest.pop(0)
        if path == ["config"]:
            content = {name: part for name, part in _read_file(value).items() if name not in ignored}
            given.origin.update(dict.fromkeys(flat(content), value))
            _merge(given.settings, content)
        elif path[0] in list_settings and len(path) == 1 and not value.startswith("["):
            values = lists.setdefault(path[0], [])
            values.append(value)
            while rest and not rest[0].startswith("-"):
                values.append(rest.pop(0))
            _put(given, path, values)
        else:
            _put(given, path, _value(option, path, value))
    return given


def _read_file(given: str) -> Options:
    """Return the content of a settings file, given by its path or, for a file of the package, by its name."""
    folder = resources.files("m3g") / "configs"
    shipped = {Path(file.name).stem: str(file) for file in folder.iterdir() if file.name.endswith(".yaml")}
    path = Path(shipped.get(given, given))
    if not path.is_file():
        raise ValueError(f"--config must be a YAML file or one of {', '.join(sorted(shipped))}, got {str(path)!r}.")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of names to values, got {type(content).__name__}.")
    return content


def _value(option: str, path: list[str], text: str) -> object:
    """Return the value of a setting: the unchanged text for a string setting, otherwise parsed as YAML."""
    hints = get_type_hints(Config)
    hint = hints[path[0]]
    if len(path) == 2 and dataclasses.is_dataclass(hint):
        hint = get_type_hints(hint).get(path[1])
    if hint is str:
        return text
    try:
        return plain_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(
            f"{option} must be a value in YAML, got {text[:60]!r} ({' '.join(str(error).split())})."
        ) from error


def _put(given: ParsedArguments, path: list[str], value: object) -> None:
    """Set the value of a nested setting."""
    *groups, name = path
    settings = given.settings
    for depth, group in enumerate(groups, start=1):
        if not isinstance(settings.get(group), dict):
            dotted = ".".join(path[:depth])
            if dotted in given.origin:
                kind = type(settings[group]).__name__
                raise ValueError(f"{given.origin[dotted]}: {dotted} must be a mapping of names to values, got {kind}.")
            settings[group] = {}
        settings = settings[group]
    settings[name] = value
    given.origin.pop(".".join(path), None)


def _merge(settings: dict[str, Any], more: Options) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            _merge(settings[name], value)
        else:
            settings[name] = value
