"""The run folder of `m3g train`.

config.yaml        every setting
environment.json   versions, machine, git commit
metrics.csv        one row per logged step          probes.csv     one row per evaluation
tensorboard/       the logged metrics, for TensorBoard; csv/ with --logger csv
loggers.json       with other trackers, the identifiers of the tracked runs
checkpoints/       last.ckpt, to resume from
model.safetensors  the trained weights              model.json     the description of the network
results.json       the final evaluation             plots/         its plots
rows.csv           the contribution of each test row to some of the scores
mismatch.csv       with --mismatch, the reliability of every evaluated training entry
embeddings.safetensors  embeddings of all rows, stored by m3g search
"""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from m3g._values import shown
from m3g.training.runs.files import Lock, reject_links, remove_leftovers, write_json, write_text
from m3g.training.runs.numbered import RESERVED
from m3g.training.settings.config import Config
from m3g.training.settings.plain_yaml import Plain

if TYPE_CHECKING:
    from m3g.data.tables.source import Source
    from m3g.nets import MultiViewNet
    from m3g.training.runs.trained import TrainedNet

LOCK = ".lock"
_PACKAGES = ("m3g", "torch", "lightning", "numpy", "scipy", "scikit-learn", "transformers", "kornia")
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # on the Hugging Face hub


def is_repository(name: str | os.PathLike[str]) -> bool:
    """Return whether `name` is USER/NAME or USER/NAME@REVISION on the hub rather than a folder.

    An existing path is not a repository. A path whose first part is a folder is not a repository either, because it
    probably names a run in that folder that is missing or misspelt.

    Example:
        >>> is_repository("someone/digits"), is_repository("someone/digits@v1"), is_repository("./run")
        (True, True, False)
    """
    text = os.fspath(name) if isinstance(name, (str, os.PathLike)) else ""
    matches = REPOSITORY.fullmatch(text.partition("@")[0]) is not None
    return matches and not Path(text).exists() and not Path(text.partition("/")[0]).is_dir()


class Run:
    """A run folder: the paths of its files, its settings and its lock.

    >>> Run("runs/first").checkpoint.as_posix()
    'runs/first/checkpoints/last.ckpt'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"run must be the folder of a run, got {type(path).__name__} {shown(path)}.")
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.environment = self.path / "environment.json"
        self.checkpoints = self.path / "checkpoints"
        self.checkpoint = self.checkpoints / "last.ckpt"
        self.weights = self.path / "model.safetensors"
        self.model = self.path / "model.json"
        self.results = self.path / "results.json"
        self.rows = self.path / "rows.csv"
        self.plots = self.path / "plots"
        self.mismatch = self.path / "mismatch.csv"
        self.data_root: Path | None = None  # searched first for data files, see `m3g.training.runs.location`
        self.net: MultiViewNet | None = None  # after training, while it is in memory
        self.loaded: TrainedNet | None = None  # set by `m3g.training.runs.export.load`
        self.table: Source | None = None  # set by `m3g.training.runs.location.open_run_table`
        self.extended_from: int | None = None  # epochs of the run before `extend`
        self._lock: Lock | None = None
        self._settings: Config | None = None

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Run:
        """Return the run in this folder; a `Run` is returned unchanged, so that its files are not read again."""
        return run if isinstance(run, Run) else cls(run)

    @classmethod
    def find(
        cls,
        run: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
    ) -> Run:
        """Return the run in this folder, or the copy of USER/NAME on the hub; the options are those of `hub.fetch`."""
        if isinstance(run, Run) or not is_repository(run):
            return cls.of(run)
        from m3g.training.runs.hub import fetch

        return cls(fetch(os.fspath(run), revision=revision, token=token, local_files_only=local_files_only))

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    @cached_property
    def model_text(self) -> str:
        """Return the content of `model.json`."""
        return self.model.read_text(encoding="utf-8")

    @cached_property
    def facts(self) -> Mapping[str, Plain]:
        """Return the content of `environment.json`; empty if it cannot be read."""
        try:
            content = json.loads(self.environment.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def check_new(self) -> None:
        """Raise if the path of the folder exists, unless this process has reserved it."""
        reserved = self.path in RESERVED and not any(self.path.iterdir())
        if not reserved and self.path.exists():
            raise ValueError(
                f"--out must be a folder that does not exist yet, but {self.path} does: choose another name, "
                f"continue it with --resume {self.path}, or delete it."
            )

    def create(self, config: Config) -> None:
        """Create the folder with its configuration; raise if it exists."""
        self.check_new()
        facts = environment()  # first, because it may take seconds (git) and a killed process must leave no files
        facts |= {"directory": os.getcwd(), "directory_from_run": os.path.relpath(os.getcwd(), self.path)}
        # Built under another name and renamed, so that a folder of this name is always complete.
        building = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            self._sweep()
            (building / "checkpoints").mkdir(parents=True)
            (building / "plots").mkdir()
            self._lock = Lock(building / LOCK, what=f"--out must be a folder that is not in use, got {self.path}")
            write_text(building / "config.yaml", config.to_yaml())
            write_json(building / "environment.json", facts)
            if os.name == "nt":
                self.release()  # Windows does not rename a folder that has an open file
            building.rename(self.path)
            if self._lock is None:
                self.lock()
            self._settings = config
        except BaseException as error:
            self.release()
            shutil.rmtree(building, ignore_errors=True)
            if isinstance(error, OSError):
                raise ValueError(
                    f"--out must be a folder that can be created, but {self.path} cannot "
                    f"({error.strerror}): choose another."
                ) from error
            raise

    def _sweep(self) -> None:
        """Remove leftovers of a process that was killed while creating a folder of this name."""
        for leftover in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):
            if leftover.is_symlink():
                continue
            with contextlib.suppress(ValueError):  # in use, or not a leftover of m3g
                lock = Lock(leftover / LOCK, what="leftover")
                shutil.rmtree(leftover, ignore_errors=True)
                lock.release()

    def lock(self) -> None:
        """Prevent other processes from training in this folder until `release`, or until this process ends."""
        self._lock = Lock(self.path / LOCK, what=f"--resume must be a folder that is not in use, got {self.path}")

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def open(self) -> Config:
        """Return the validated configuration of an existing run, read at the first call; reject symbolic links."""
        if self._settings is not None:
            return self._settings
        if not self.path.is_dir():
            raise ValueError(f"run must be the folder of a run, but there is none at {self.path}.")
        if not self.config.is_file():
            raise ValueError(
                f"run must be a folder written by m3g train, but {self.path} has no config.yaml: check the name."
            )
        reject_links(self.path)
        self._settings = Config.read(self.config)
        return self._settings

    def extend(self, epochs: int) -> Config:
        """Return the configuration of an existing run with more epochs; `fit` stores it when it resumes the run."""
        config = self.open()
        before, limit = config.loop.epochs, config.loop.max_steps
        if limit is not None:
            raise ValueError(
                f"loop.epochs must be omitted, because loop.max_steps ({limit}) ends the run, got {epochs}."
            )
        if before is not None and epochs < before:
            raise ValueError(f"loop.epochs must be at least the {before} epochs of the run, got {epochs}.")
        self.extended_from = before
        self._settings = replace(config, loop=replace(config.loop, epochs=epochs))
        return self._settings

    def clean(self) -> None:
        """Remove partial files of a killed process."""
        for folder in (self.path, self.checkpoints, self.plots):
            if folder.is_dir():
                remove_leftovers(folder)


def environment() -> dict[str, Plain]:
    """Return the properties of the environment on which a result may depend: versions, machine, git commit."""
    import torch

    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "git": _git_commit(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _program() -> str:
    """Return the name of the program; it is m3g for `python -m m3g` as well."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _git_commit() -> str | None:
    """Return the git commit of the working directory, with a plus sign if tracked files changed; None if unknown."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=5
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or not a repository
    return commit + ("+" if changed else "")
