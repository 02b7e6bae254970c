"""The command `m3g`, or a function, in separate processes that do not import the libraries again.

Importing torch and Lightning takes longer than most tests. Here, Python's fork server imports them once, and every
process is a copy of it. Several processes are started by the agent of torchrun, which ends all of them if one fails.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported later, it would keep a group alive as a default argument
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import pictures
from m3g.cli import main
from m3g.training.loop.logs import Table
from threads import group_threads

SMALL = ["--loop.evaluate_every", "0", "--loop.accelerator", "cpu", "--encoder_options.width", "32"]
SAME = ["--encoder_options.dropout", "0"]  # masks of dropout differ between processes
FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(["forked", "m3g.training.loop.build", "m3g.training.loop.fit"])


def run(words, folder, logs, *, killed=None):
    """Return exit code and output; `killed` = (row, seconds): kill it `seconds` after step `row` is logged."""
    process = FORK_SERVER.Process(target=_alone, args=(logs, words, folder, killed))
    process.start()
    try:
        process.join(450)  # deadlocked processes would wait for hours
    finally:
        process.kill()
    process.join()
    return process.exitcode, (logs / "output").read_text()


def torchrun(words, folders, logs, *, killed=None):
    """Like `run`, with one process per folder; the exit code is that of the first process that failed."""
    group = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=len(folders),
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    logging.disable(logging.ERROR)  # messages of the agent about failed processes
    try:
        elastic_launch(group, _of_rank)(words, folders, killed)
        code = 0
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code, "".join(path.read_text() for path in sorted(logs.rglob("*.log")))


def in_group(function, world, folder, *, seconds=240):
    """Return the results of a module-level function, called without arguments in each process of a gloo group."""
    processes = [FORK_SERVER.Process(target=_member, args=(function, rank, world, folder)) for rank in range(world)]
    for process in processes:
        process.start()
    end = time.monotonic() + seconds
    try:
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
    errors = [(folder / f"errors{rank}").read_text() for rank in range(world)]
    assert [process.exitcode for process in processes] == [0] * world, "\n".join(errors)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(world)]


def _member(function, rank, world, folder):
    with open(folder / f"errors{rank}", "wb") as file:
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    options = {"rank": rank, "world_size": world, "timeout": timedelta(seconds=100)}
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", **options)
    try:
        torch.save(function(), folder / f"rank{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
    assert not group_threads()


def peak(words, folder, logs):
    """Return the peak resident memory of a run in MiB, including file-backed pages."""
    code, output = run(words, folder, logs)
    assert code == 0, output
    return int((logs / "peak").read_text())


def _alone(logs, *arguments):
    with open(logs / "output", "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _command(*arguments)
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        (logs / "peak").write_text(str(int(line.split()[1]) // 1024))


def _of_rank(words, folders, killed):
    try:
        _command(words, folders[int(os.environ["RANK"])], killed)
    finally:
        if left := group_threads():
            print(f"threads left: {left}", flush=True)


def _command(words, folder, killed):
    # The fork server sets its own start method; data loaders must use the default of the platform.
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    os.chdir(folder)
    pictures.leave_plots_of_runs_blank()
    if killed is not None:
        _kill_after(*killed)
    code = main([str(word) for word in words])
    if code != 0:
        raise SystemExit(code)


def _kill_after(row, seconds):
    """Kill this process from a second thread, because an observer outside could be too late under load."""
    append = Table.append

    def counting(self, content):
        append(self, content)
        if content["step"] == row:
            threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()

    Table.append = counting


def losses(folder):
    """Return the losses of all steps of a run."""
    return [row["loss"] for row in Table(folder / "metrics.csv").rows()]
