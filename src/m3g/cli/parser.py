"""Parser of the options of a command: argparse with YAML values and the error messages of `m3g._options`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import yaml

from m3g._options import Annotation, in_words, matches
from m3g._values import suggestion
from m3g.training.settings.plain_yaml import plain_yaml


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that keeps the line breaks of descriptions and shows defaults except None, 0, False, {} and []."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        if default in (None, False, argparse.SUPPRESS, {}, []):
            return action.help
        return f"{action.help} (default: {' '.join(default) if isinstance(default, list) else default})"


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `ValueError` and accepts annotations such as `int | None` as types.

    Example:
        >>> parser = Parser("m3g find")
        >>> _ = parser.add_argument("--top", type=int)
        >>> parser.parse(["--top", "many"])
        Traceback (most recent call last):
        ValueError: --top must be a whole number, got 'many'.
        >>> parser.parse(["--topp", "3"])
        Traceback (most recent call last):
        ValueError: the options of m3g find must be those that m3g find --help lists, got --topp: did you mean --top?
    """

    def __init__(self, command: str, **more: Any) -> None:
        super().__init__(prog=command, allow_abbrev=False, formatter_class=_Formatter, **more)

    def add_argument(self, *names: str, **more: Any) -> argparse.Action:
        hint = more.get("type")
        if hint not in (None, str, Path):
            more["type"] = partial(_value, hint=hint)
            more.setdefault("metavar", None if names[0][0] != "-" else names[0].lstrip("-").rpartition(".")[2].upper())
        return super().add_argument(*names, **more)

    def add_run_options(self) -> None:
        """Add the options of commands that read the network and the data of a finished run."""
        self.add_argument("--data-root", type=str, default=None, help="the folder of the run's data, if it was moved")
        self.add_argument(
            "--trust", action="store_true", help="allow encoder classes from outside m3g, torch.nn and transformers"
        )

    def set_help(self, **texts: str) -> None:
        """Replace the help of options; `argparse.SUPPRESS` hides an option."""
        for action in self._actions:
            action.help = texts.get(action.dest, action.help)

    def parse(self, arguments: Sequence[str], *, also: Callable[[], Sequence[str]] = tuple) -> argparse.Namespace:
        """Parse the arguments; the error for an unknown option suggests a known one, or one that `also` returns."""
        args, unknown = self.parse_known_args(arguments)
        if unknown:
            got = unknown[0].partition("=")[0]
            known = [*self._option_string_actions, *also()]
            is_file = not got.startswith("-") and "--table" in known
            hint = ": pass files with --table or --views." if is_file else suggestion(got, known)
            raise ValueError(f"the options of {self.prog} must be those that {self.prog} --help lists, got {got}{hint}")
        return args

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument (\S+): must", r"\1 must", message)
        message = re.sub(r"^argument (\S+): ignored explicit argument (.*)", r"\1 must have no value, got \2.", message)
        raise ValueError(re.sub(r"^argument (\S+): expected .*", r"\1 must have a value, got none.", message))


def _value(text: str, hint: Annotation) -> object:
    try:
        value = plain_yaml(text)
    except (yaml.YAMLError, ValueError):
        value = text
    if not matches(value, hint):
        raise argparse.ArgumentTypeError(f"must be {in_words(hint)}, got {value!r}.")
    return value


def data_root(args: argparse.Namespace) -> Path | None:
    """Return the validated --data-root of a command; None if it is not given, or not an option of the command."""
    given: str | None = getattr(args, "data_root", None)
    if given is not None and not Path(given).is_dir():
        raise ValueError(f"--data-root must be a folder that exists, got {given!r}.")
    return None if given is None else Path(given)
