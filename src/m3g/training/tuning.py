"""Search for settings with Optuna, on the validation split only.

The study is stored in a journal file. Several processes may write to it at once, and a later call may continue it.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from lightning.pytorch import LightningModule, Trainer

from m3g import _checks, losses
from m3g.data import ViewsData
from m3g.training.loop.build import build_data
from m3g.training.loop.fit import train
from m3g.training.runs.evaluate import Probe
from m3g.training.runs.files import write_csv
from m3g.training.settings.check import check
from m3g.training.settings.config import Config
from m3g.training.settings.views import kinds, num_epochs

if TYPE_CHECKING:  # an optional dependency
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

METRICS = {"retrieval": "recall_at_1", "linear": "linear_mean", "knn": "knn_mean"}
# Search space: all values of the width, the lower and upper limits of the other parameters.
WIDTHS = (64, 128, 256, 512)
TEMPERATURES = (0.02, 1.0)
LEARNING_RATES = (2e-4, 2e-2)


class Report(Probe):
    """Callback that reports the metric of every evaluation to a trial, and ends the trial if the pruner rejects it."""

    def __init__(self, folder: Path, *, every: int, trial: Trial, metric: str) -> None:
        super().__init__(folder, every=every)
        self.trial, self.metric = trial, metric
        self.value: float | None = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        if (trainer.current_epoch + 1) % self.every:
            return
        self.value = self.table.rows()[-1][self.metric]
        self.trial.report(self.value, trainer.current_epoch + 1)
        if self.trial.should_prune():
            raise _checks.extra("optuna", "tune").TrialPruned


def suggest(trial: Trial, config: Config, data: ViewsData, choices: Sequence[str]) -> Config:
    """Return the settings of a trial: `config` with suggested loss, temperature, learning rate and width.

    The loss is one of `choices`, if there are any. The temperature is suggested only if the loss has one. The width is
    suggested only if all views are vectors or columns of numbers and categories, the encoder is `mlp`, `residual` or
    not set, and no view has separate settings. A temperature, epsilon or width that is set, and a learning rate that
    differs from the default, are not changed.
    """
    suggested = copy.deepcopy(config)
    if choices:
        suggested.loss = trial.suggest_categorical("loss", list(choices))
    parameters = inspect.signature(type(losses.build(suggested.loss))).parameters
    if "temperature" in parameters and not {"temperature", "epsilon"} & set(suggested.loss_options):
        suggested.loss_options["temperature"] = trial.suggest_float("temperature", *TEMPERATURES, log=True)
    if config.optim.learning_rate == Config().optim.learning_rate:
        suggested.optim.learning_rate = trial.suggest_float("learning_rate", *LEARNING_RATES, log=True)
    default_encoders = config.encoder in (None, "mlp", "residual") and not config.view
    if default_encoders and set(kinds(data)) <= {"vector", "table"} and "width" not in config.encoder_options:
        suggested.encoder_options["width"] = trial.suggest_categorical("width", list(WIDTHS))
    check(suggested)
    return suggested


def tune(
    config: Config,
    out: str | os.PathLike[str],
    *,
    trials: int = 30,
    metric: str = "retrieval",
    choices: Sequence[str] = (),
    worker: int = 0,
    trust: bool = False,
) -> Study:
    """Search until the study in the folder `out` has at least `trials` finished or pruned trials; return the study.

    Args:
        config: the settings of every trial, except those drawn by `suggest`.
        out: the folder of the study; an existing one is continued.
        trials: total number of trials of the study, over all calls and processes. Parallel processes finish the trials
            that they have started, so there may be a few more.
        metric: `retrieval` (recall at 1), `linear` or `knn` (accuracies), on the validation split.
        choices: losses to search over; by default that of `config`.
        worker: index of this process among those that search in parallel.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
    """
    optuna = _checks.extra("optuna", "tune")
    _checks.positive_int("trials", trials)
    measure = METRICS[_checks.one_of("metric", metric, METRICS)]
    for name in choices:
        _checks.one_of("losses", name, losses.available())
    config = copy.deepcopy(config)
    config.logger, config.loop.patience = ["none"], 0  # the pruner stops trials
    data = build_data(config)
    if metric != "retrieval" and data.num_classes is None:
        raise ValueError(f"metric must be retrieval if the data has no labels, got {metric!r}.")
    every, epochs = config.loop.evaluate_every, num_epochs(config, data)
    if config.loop.max_steps is not None:
        steps = math.ceil(data.sampler().num_steps / config.loop.accumulate)
        epochs = min(epochs, math.ceil(config.loop.max_steps / steps))
    every = every if 0 < every <= epochs else epochs
    if data.num_rows("val") < 2:
        raise ValueError("data_options.val must be a fraction that gives at least 2 validation rows, got fewer.")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    study = _open(optuna, folder, config, metric, choices, worker)
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)

    def objective(trial: Trial) -> float:
        settings = suggest(trial, config, data, choices)
        run = folder / f"trial-{trial.number}"
        shutil.rmtree(run, ignore_errors=True)
        report = Report(run, every=every, trial=trial, metric=measure)
        try:
            with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
                train(settings, run, data=data, trust=trust, callbacks=[report])
        except ValueError as error:
            if not str(error).startswith("training stopped"):
                raise
            raise optuna.TrialPruned(str(error)) from error  # training diverged
        finally:
            shutil.rmtree(run, ignore_errors=True)
        assert report.value is not None
        return report.value

    while len(study.get_trials(deepcopy=False, states=ended)) < trials:
        study.optimize(objective, n_trials=1, callbacks=[_show])
    return study


def _open(optuna: ModuleType, folder: Path, config: Config, metric: str, choices: Sequence[str], worker: int) -> Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "study.log")))
    study: Study = optuna.create_study(study_name="m3g", storage=journal, direction="maximize", load_if_exists=True)
    request = {"settings": config.to_yaml(), "metric": metric, "losses": list(choices)}
    before = study.user_attrs.get("request")
    if before is not None and json.loads(before) != request:
        raise ValueError(
            f"--out must be a new folder, or that of a study with the same settings, metric and losses, but the study "
            f"in {folder} has different ones: choose another name."
        )
    if before is None:
        study.set_user_attr("request", json.dumps(request))
    # The seed depends on the number of trials, because a continued study must not repeat its first draws.
    study.sampler = optuna.samplers.TPESampler(seed=config.seed + 1000 * worker + len(study.get_trials(deepcopy=False)))
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=5)
    return study


def _show(study: Study, trial: FrozenTrial) -> None:
    value = "pruned" if trial.value is None or trial.state.name == "PRUNED" else f"{trial.value:.4f}"
    settings = "  ".join(f"{name} {_short(part)}" for name, part in trial.params.items())
    print(f"trial {trial.number}  {value}  {settings}", flush=True)


def train_arguments(params: Mapping[str, object]) -> list[str]:
    """Return the arguments of `m3g train` for the parameters of a trial.

    Example:
        >>> train_arguments({"temperature": 0.123456, "width": 64})
        ['--loss_options.temperature', '0.1235', '--encoder_options.width', '64']
    """
    names = {
        "loss": "loss",
        "temperature": "loss_options.temperature",
        "learning_rate": "optim.learning_rate",
        "width": "encoder_options.width",
    }
    return [argument for name, value in params.items() for argument in (f"--{names[name]}", _short(value))]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_study(study: Study, folder: str | os.PathLike[str], metric: str) -> Path:
    """Write the trials that have a value to `trials.csv`, and plots to `study.png`; return the path of the plots."""
    plt = _checks.extra("matplotlib.pyplot", "train")
    done = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
    names = list(dict.fromkeys(name for trial in done for name in trial.params))
    rows = [
        [trial.number, trial.state.name.lower(), trial.value, *(trial.params.get(name, "") for name in names)]
        for trial in done
    ]
    write_csv(Path(folder) / "trials.csv", ["trial", "state", METRICS[metric], *names], rows)
    complete = [trial for trial in done if trial.state.name == "COMPLETE"]
    figure, axes = plt.subplots(1, 1 + len(names), figsize=(3 * (1 + len(names)), 3), sharey=True, layout="constrained")
    axes = [axes] if not names else list(axes)
    values = [trial.value for trial in complete if trial.value is not None]
    best = [max(values[: i + 1]) for i in range(len(values))]
    axes[0].plot([trial.number for trial in complete], values, "o", label="trial")
    axes[0].step([trial.number for trial in complete], best, where="post", label="best so far")
    axes[0].set(xlabel="trial", ylabel=f"{METRICS[metric]}, validation")
    axes[0].legend()
    for axis, name in zip(axes[1:], names):
        pairs = [(trial.params[name], trial.value) for trial in complete if name in trial.params]
        categorical = any(isinstance(x, str) for x, _ in pairs)
        axis.plot([str(x) if categorical else x for x, _ in pairs], [y for _, y in pairs], "o")
        axis.set(xlabel=name, **({} if categorical else {"xscale": "log"}))
    path = Path(folder) / "study.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
