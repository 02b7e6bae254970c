"""The command `m3g`; each subcommand is one module of this package."""

from m3g.cli.main import main

__all__ = ["main"]
