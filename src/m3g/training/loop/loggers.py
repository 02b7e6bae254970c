"""Experiment trackers: Lightning's loggers by name, and a logger for trackio, which Lightning does not support.

`tensorboard` and `csv` write to the run folder. The others write to their usual locations: `WANDB_DIR`,
`MLFLOW_TRACKING_URI` (by default `mlflow.db` in the working directory) and `TRACKIO_DIR`. Their offline modes apply,
for example `WANDB_MODE=offline`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Protocol

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from m3g.training.loop.processes import is_first
from m3g.training.runs.files import write_json
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config, flat
from m3g.training.settings.plain_yaml import Plain

PROJECT = "m3g"
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio"}  # package that a logger requires
IDENTIFIERS = "loggers.json"  # identifiers of the tracked runs, in the run folder, so that a resumed run continues them


class Loggers:
    """Loggers of one run, open from the start of training until its results are recorded.

    Args:
        config: the settings; `config.logger` contains the names.
        folder: the run folder, which may not exist yet.

    Raises:
        ImportError: if the package of a logger is not installed.
    """

    def __init__(self, config: Config, folder: str | os.PathLike[str]) -> None:
        self.names = [name for name in config.logger if name != "none"]
        for name in self.names:
            if name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
                raise ImportError(f"{PACKAGES[name]} is not installed: pip install 'm3g[loggers]'.")
        self.run = Run(folder)
        self.opened: list[Logger] = []
        self.settings: dict[str, Plain] = {}

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("success" if kind is None else "failed")

    def build(self) -> list[Logger]:
        """Return the loggers for Lightning's trainer; nothing is written to the run folder before `start`."""
        identifiers = self._identifiers()
        for name in self.names:
            with _writable(name):
                self.opened.append(self._build(name, identifiers.get(name)))
        return self.opened

    def _build(self, name: str, identifier: str | None) -> Logger:
        path, title = self.run.path, self.run.path.name
        if name == "tensorboard":
            return TensorBoardLogger(path, name="tensorboard", version="", default_hp_metric=False)
        if name == "csv":
            return CSVLogger(path, name="csv")
        if name == "wandb":
            # Absolute, because the wandb service resolves relative paths against the directory in which the first run
            # of the process started.
            directory = os.path.abspath(os.environ.get("WANDB_DIR", "."))
            project = os.environ.get("WANDB_PROJECT", PROJECT)
            return WandbLogger(name=title, project=project, save_dir=directory, id=identifier or uuid.uuid4().hex[:8])
        if name == "mlflow":
            # Absolute, because MLflow caches one store per address in a process, even if the working directory changes.
            address = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{os.path.abspath('mlflow.db')}")
            project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            return MLFlowLogger(project, run_name=title, tracking_uri=address, run_id=identifier)
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        return TrackioLogger(project, identifier or f"{title}-{uuid.uuid4().hex[:4]}")

    def start(self, config: Config) -> None:
        """Record the settings; requires the run folder."""
        self.settings = flat(config.to_dict())
        if not is_first():
            return
        for name, logger in zip(self.names, self.opened):
            with _writable(name):
                logger.log_hyperparams(self.settings)
        identifiers = {name: logger.version for name, logger in zip(self.names, self.opened) if name in PACKAGES}
        if identifiers:
            write_json(self.run.path / IDENTIFIERS, identifiers)

    def log_results(self) -> None:
        """Record the final numbers of `results.json` as `test/NAME`."""
        if not is_first() or not self.run.results.is_file():
            return
        numbers = json.loads(self.run.results.read_text(encoding="utf-8"))["numbers"]
        metrics = {f"test/{name}": float(value) for name, value in numbers.items() if value is not None}
        for logger in self.opened:
            if isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(self.settings, metrics=metrics)  # shown in its HPARAMS tab
            else:
                logger.log_metrics(metrics)
            logger.save()

    def close(self, status: str = "success") -> None:
        """Close the loggers, and flush the data that trackers hold in memory."""
        for logger in self.opened:
            logger.finalize(status)
            if isinstance(logger, TrackioLogger):
                logger.close()
            if isinstance(logger, WandbLogger) and is_first() and logger._experiment is not None:
                logger.experiment.finish(exit_code=int(status != "success"))
        self.opened = []

    def _identifiers(self) -> Mapping[str, str]:
        path = self.run.path / IDENTIFIERS
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@contextlib.contextmanager
def _writable(name: str) -> Iterator[None]:
    """Convert errors of a tracker to a ValueError that names the tracker."""
    try:
        yield
    except Exception as error:  # trackers raise various errors: no account, no connection, no disk
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(
            f"logger must be a tracker that can be written to, got {name!r} ({reason}): log in, choose its offline "
            "mode, or omit it."
        ) from error


class _Record(Protocol):
    """An open run of trackio."""

    def log(self, metrics: dict[str, float], step: int | None) -> None: ...


class TrackioLogger(Logger):
    """Logger for trackio: metrics in a local database, displayed by `trackio show`."""

    def __init__(self, project: str, run: str) -> None:
        super().__init__()
        self._project, self._run = project, run
        self._record: _Record | None = None

    @property
    def name(self) -> str:
        return self._project

    @property
    def version(self) -> str:
        return self._run

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Plain] | Namespace, *args: object, **kwargs: object) -> None:
        import trackio

        if self._record is None:
            config = vars(params) if isinstance(params, Namespace) else dict(params)
            self._record = trackio.init(
                project=self._project, name=self._run, config=config, resume="allow", embed=False
            )

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self._record is None:
            self.log_hyperparams({})
        assert self._record is not None
        self._record.log(dict(metrics), step=step)

    @rank_zero_only
    def close(self) -> None:
        if self._record is not None:
            import trackio

            trackio.finish()  # not `self._record.finish()`, after which trackio would finish the run again at exit
            self._record = None
