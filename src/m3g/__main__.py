"""Entry point of the command `m3g` and of `python -m m3g`."""

import sys

from m3g._interrupts import handle_interrupts


def command() -> int:
    """Run the command and return its exit code, unless `leave` ends the process: under torchrun and after Ctrl-C."""
    handle_interrupts()  # before the other imports, which take longer
    from m3g.cli import main
    from m3g.cli.launch import leave

    return leave(main())


if __name__ == "__main__":
    sys.exit(command())
