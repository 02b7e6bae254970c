"""Entry point of the command `m3g` and of `python -m m3g`."""

import sys
import warnings

from m3g._interrupts import handle_interrupts


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """Return a warning as a line for the terminal, without the location in the source code."""
    return f"m3g: warning: {' '.join(str(message).split())}\n"


def command() -> int:
    """Run the command and return its exit code; under torchrun and after Ctrl-C, `leave` ends the process instead."""
    handle_interrupts()  # before the imports below, which take seconds and may be interrupted
    from m3g.cli import main
    from m3g.cli.launch import leave

    warnings.formatwarning = _one_line
    return leave(main())


if __name__ == "__main__":
    sys.exit(command())
