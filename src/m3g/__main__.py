"""The command `m3g`, also as `python -m m3g`."""

import sys

from m3g.cli import main
from m3g.cli.launch import leave


def command() -> int:
    """Run the command and return the exit code. Under torchrun the process ends here (`leave`)."""
    return leave(main())


if __name__ == "__main__":
    sys.exit(command())
