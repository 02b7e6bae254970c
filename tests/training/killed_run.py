"""The command `m3g`, killed soon after it has written a given row of metrics.csv.

python killed_run.py ROW SECONDS train ...

It kills itself, from a second thread: a test that watched it from outside might be too late on a busy machine.
"""

import os
import signal
import sys
import threading

from m3g.cli import main
from m3g.training.logs import Table


def kill_after(row: int, seconds: float) -> None:
    append = Table.append

    def counting(self, content):
        append(self, content)
        if content["step"] == row:
            threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()

    Table.append = counting


if __name__ == "__main__":
    kill_after(int(sys.argv[1]), float(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
