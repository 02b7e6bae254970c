"""Every setting of a run, with its default: what `m3g train --help` lists and a run's `config.yaml` holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from m3g._options import typed
from m3g._values import meant
from m3g.training.settings.check import check
from m3g.training.settings.plain_yaml import read_yaml

Origin = str | Mapping[str, str]  # the file that settings come from, or the file of each by its dotted name


@dataclass
class Heads:
    """The small networks between the encoders and the loss.

    Args:
        embedding_size: features d of the space in which the views are compared
        hidden: units of the hidden layer of each head; None makes a head one linear map
        predictor: add a prediction head after the projection (usual with a teacher, which has none)
        bias: where the biases of the last layer of every projection start; None draws them at random. A loss that
            cannot tell z from -z (gram, pmrl, symile) needs a common one, say 0.5, to align untrained views
    """

    embedding_size: int = 64
    hidden: int | None = 512
    predictor: bool = False
    bias: float | None = None


@dataclass
class TeacherSettings:
    """The teacher: a slowly moving average of the network, which sees some of the views instead of it.

    Args:
        enabled: train with a teacher
        momentum: how slowly the teacher moves at the start of the run; it stops moving at the end
        student_views: None lets every view in turn come from the teacher and all others from the student
            (leave one out); a number s lets s views, drawn anew each step, come from the student and the
            others from the teacher, whose activations need no memory
    """

    enabled: bool = False
    momentum: float = 0.99
    student_views: int | None = None


@dataclass
class OptimSettings:
    """AdamW and its schedules; biases and one-dimensional parameters never decay.

    Args:
        learning_rate: the peak, reached after the warm-up
        min_learning_rate: what the half cosine after the warm-up ends at
        warmup_epochs: epochs of linear warm-up from 0; if loop.max_steps ends the run early, the same share of its
            steps
        weight_decay: weight decay at the first step
        end_weight_decay: weight decay at the last step (half a cosine between); None keeps it constant
        betas: Adam's two memories
        eps: the floor of Adam's denominator
        reference_batch: the batch size these values were found with; the scaling rules for Adam and for the
            teacher's momentum carry them to the batch of this run (all processes and accumulated batches
            together); None uses them as they are
    """

    learning_rate: float = 2e-3
    min_learning_rate: float = 2e-5
    warmup_epochs: float = 2.0
    weight_decay: float = 0.02
    end_weight_decay: float | None = None
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    reference_batch: int | None = None

    def __post_init__(self) -> None:
        first, second = self.betas  # a file has a list
        self.betas = (first, second)


@dataclass
class LoopSettings:
    """How long, how precise, on what, and how often to save.

    Args:
        epochs: passes over the training data
        max_steps: stop after this many optimiser steps, whatever epochs says; None does not stop early
        precision: Lightning's name of a precision, e.g. 32-true, bf16-mixed, 16-mixed
        accumulate: batches whose gradients are added up before each optimiser step
        chunk_size: rows of a view that are embedded at a time, so that memory holds the activations of these only; they
            are computed twice, and the loss is still that of the whole batch; None embeds all rows at once
        clip: largest gradient norm; None does not clip
        accelerator: cpu, gpu, ...; auto takes the fastest there is
        devices: processes on this machine (torchrun sets its own number)
        strategy: auto, ddp, fsdp, ...
        sync_batchnorm: share the statistics of batch normalisation between processes
        checkpoint_every: optimiser steps between two checkpoints
        evaluate_every: epochs between two quick evaluations on the validation split; 0 for none
        log_every: optimiser steps between two rows of metrics.csv
    """

    epochs: int = 20
    max_steps: int | None = None
    precision: str = "32-true"
    accumulate: int = 1
    chunk_size: int | None = None
    clip: float | None = 1.0
    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    sync_batchnorm: bool = False
    checkpoint_every: int = 100
    evaluate_every: int = 5
    log_every: int = 1


@dataclass
class Config:
    """All settings of a run.

    Args:
        data: a data set; `m3g data` lists them
        data_options: options of the data set, e.g. --data_options.batch_size 128
        encoder: an encoder for every view, `m3g encoders` lists them, or the class path of any nn.Module; None takes
            what suits the kind of each view
        encoder_options: options of the encoder, e.g. --encoder_options.width 512
        view: settings of single views, by their names: how one is read (--view.photo.kind image) and its encoder
            (--view.photo.encoder conv --view.photo.pool 2), the earlier view it shares weights with
            (--view.de.share en), whether the encoder is frozen (--view.photo.frozen true) and its own peak learning
            rate (--view.photo.learning_rate 1e-5)
        shared: one encoder and one projection head for all views, which must then have one shape, instead of
            one per view; None does what suits the data set
        loss: a loss; `m3g losses` lists them
        loss_options: options of the loss, e.g. --loss_options.temperature 0.1
        heads: projection and prediction heads
        teacher: the teacher
        optim: the optimiser
        loop: the training loop
        views_per_step: how many of the k views are compared at a time; None takes all of them, or with the
            losses m3g and kl as many as their exact solver, whose cost is n ** k, takes quickly
        subsets_per_step: of how many random subsets of that size a step takes the mean; None takes as many as
            are quick
        view_dropout: leave each entry (a view of a row) out of the loss of a step with this probability, so that the
            network learns to do without; every row keeps two of its views
        mismatch: watch for entries that do not belong to their row, and leave them out of the loss; `m3g audit` lists
            them
        logger: where metrics, settings and results are recorded: tensorboard, csv, wandb, mlflow, trackio, several of
            them (--logger csv wandb), or none; metrics.csv and results.json are written in any case
        seed: fixes every random choice: a run on CPU is repeated bit for bit
    """

    data: str = "multiple-features"
    data_options: dict[str, Any] = field(default_factory=dict)
    encoder: str | None = None
    encoder_options: dict[str, Any] = field(default_factory=dict)
    view: dict[str, Any] = field(default_factory=dict)
    shared: bool | None = None
    loss: str = "m3g"
    loss_options: dict[str, Any] = field(default_factory=dict)
    heads: Heads = field(default_factory=Heads)
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    optim: OptimSettings = field(default_factory=OptimSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    views_per_step: int | None = None
    subsets_per_step: int | None = None
    view_dropout: float = 0.0
    mismatch: bool = False
    logger: Sequence[str] = field(default_factory=lambda: ["tensorboard"])
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values only: what YAML and JSON hold."""
        content = dataclasses.asdict(self)
        content["optim"]["betas"] = list(self.optim.betas)
        return content

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_dict(cls, content: object, *, origin: Origin = "") -> Config:
        """The validated settings in a plain dictionary; a missing name takes its default.

        This is the only validation of settings that come from a file or a command line.
        """
        _refuse_classes(content, origin)
        config: Config = _build(cls, content, origin)
        check(config)
        return config

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """The settings in a YAML file."""
        return cls.from_dict(read_yaml(path), origin=str(path))


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under names with points.

    Example:
        >>> flat({"loop": {"epochs": 3}, "seed": 0})
        {'loop.epochs': 3, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


GROUPS: dict[str, type] = {"heads": Heads, "teacher": TeacherSettings, "optim": OptimSettings, "loop": LoopSettings}


def _build(kind: type, content: object, origin: Origin, group: str = "") -> Any:
    if not isinstance(content, dict):
        what = _file(origin, group) + group or "settings"
        raise ValueError(
            f"{what.removesuffix(': ')} must be a mapping of names to values, got {type(content).__name__}."
        )
    known = sorted(entry.name for entry in dataclasses.fields(kind))
    path = f"{group}." if group else ""
    values = {}
    for name, value in content.items():
        file = _file(origin, f"{path}{name}")
        if name not in known:
            what = (file + group or "settings").removesuffix(": ")
            raise ValueError(f"{what} must have only the names {', '.join(known)}, got {name}{meant(name, known)}")
        values[name] = _build(GROUPS[name], value, origin, name) if kind is Config and name in GROUPS else value
        typed(kind, {name: values[name]}, prefix=file + path)
    return kind(**values)


def _file(origin: Origin, path: str) -> str:
    """The beginning of a message about a setting: the file that it comes from, if it comes from one."""
    if isinstance(origin, Mapping):
        origin = next((file for name, file in origin.items() if f"{name}.".startswith(f"{path}.")), "")
    return f"{origin}: " if origin else ""


def _refuse_classes(content: object, origin: Origin, path: str = "") -> None:
    """Refuse `class_path` anywhere: the one setting that may name a class is `encoder`, under the rules of --trust."""
    if isinstance(content, Mapping):
        if "class_path" in content:
            what = _file(origin, path.rstrip(".")).removesuffix(": ") or "settings"
            raise ValueError(
                f"{what} must not have class_path, got {content['class_path']!r}: only the setting encoder may name a "
                "class."
            )
        for name, part in content.items():
            _refuse_classes(part, origin, f"{path}{name}.")
    elif isinstance(content, (list, tuple)):
        for part in content:
            _refuse_classes(part, origin, path)
