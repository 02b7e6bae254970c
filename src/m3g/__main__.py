"""`python -m m3g` is the command `m3g`."""

import sys

from m3g.cli import main

if __name__ == "__main__":
    sys.exit(main())
