"""Entry point of the command `m3g` and of `python -m m3g`."""

import sys

from m3g.cli import main
from m3g.cli.launch import leave


def command() -> int:
    """Run the command and return the exit code. Under torchrun, `leave` ends the process."""
    return leave(main())


if __name__ == "__main__":
    sys.exit(command())
