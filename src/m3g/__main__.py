"""`python -m m3g` is the command `m3g`."""

import sys

from m3g.cli import main
from m3g.cli.launch import leave

if __name__ == "__main__":
    sys.exit(leave(main()))
