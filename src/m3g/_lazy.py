"""Lazy import of the public names of a package, so that `import m3g` does not import torch."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) for the imports in a package's `if TYPE_CHECKING:` block.

    Type checkers read the same block, so the module of a name is listed once. Submodules are also imported on access.

    Example:
        >>> import m3g
        >>> "M3GLoss" in dir(m3g), m3g.M3GLoss.__module__
        (True, 'm3g.losses.m3g')
    """
    module = sys.modules[package]
    modules = _type_checking_imports(Path(str(module.__file__)).read_text(encoding="utf-8"))

    def get(name: str) -> object:
        if name in modules:
            value = getattr(importlib.import_module(modules[name]), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            value = importlib.import_module(f"{package}.{name}")
        else:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=module)  # Python suggests a similar name
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *modules})


def _type_checking_imports(source: str) -> dict[str, str]:
    """Return the module of every name that is imported in an `if TYPE_CHECKING:` block."""
    blocks = [part for part in ast.parse(source).body if isinstance(part, ast.If)]
    return {
        alias.name: statement.module or ""
        for block in blocks
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
