"""Settings of a run with their defaults, for `m3g train --help` and the `config.yaml` of a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from m3g._options import typed
from m3g._values import suggestion
from m3g.training.settings.check import check
from m3g.training.settings.plain_yaml import Plain, read_yaml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Group = TypeVar("Group", bound="DataclassInstance")
MIN_EPOCHS = 20  # minimum number of epochs if `loop.epochs` is None
MIN_STEPS = 600  # minimum number of optimiser steps if `loop.epochs` and `loop.max_steps` are None
Origin = str | Mapping[str, str]  # the file of all settings, or a mapping from dotted names of settings to files


@dataclass
class Heads:
    """Networks between the encoders and the loss. The encoders linear, residual and tfidf have no projection head.

    Args:
        embedding_size: number of features d of the embeddings
        hidden: units of the hidden layer of each head; None means a linear head. In the encoder residual, units of the
            last hidden layer; None omits it
        predictor: add a prediction head after the projection head (common with a teacher; the teacher has no prediction
            head)
        bias: initial bias of the last layer of every projection head; None means PyTorch's default. Losses that are
            invariant to signs (gram, pmrl, symile) require a common bias, such as 0.5, so that the views align
        weight_std: standard deviation of the initial weights of the heads (truncated normal; the paper: 0.02); None
            means PyTorch's default
    """

    embedding_size: int = 64
    hidden: int | None = 512
    predictor: bool = False
    bias: float | None = None
    weight_std: float | None = None


@dataclass
class TeacherSettings:
    """The teacher, a moving average of the network (the student), which embeds some of the views.

    Args:
        enabled: train with a teacher
        momentum: momentum of the moving average at the start of the run; it increases to 1 at the end
        student_views: number of views that the student embeds, drawn at random in each step; the teacher embeds the
            others without storing activations. None means the leave-one-out form: each view in turn is embedded by the
            teacher and all others by the student
    """

    enabled: bool = False
    momentum: float = 0.99
    student_views: int | None = None


@dataclass
class OptimSettings:
    """AdamW and its schedules; biases and one-dimensional parameters have no weight decay.

    Args:
        learning_rate: peak learning rate, after the warm-up
        min_learning_rate: final learning rate of the cosine decay
        warmup_epochs: epochs of linear warm-up from 0; if loop.max_steps ends the run, the warm-up takes the fraction
            warmup_epochs / loop.epochs of all steps
        weight_decay: weight decay at the first step
        end_weight_decay: weight decay at the last step (cosine schedule); None keeps it constant
        betas: betas of Adam
        eps: epsilon of Adam
        reference_batch: batch size for which the learning rates, betas, eps and teacher.momentum were tuned; scaling
            rules convert them to the batch size of this run (all processes and accumulated batches together); None uses
            them unchanged
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
        first, second = self.betas  # a list if read from a file
        self.betas = (first, second)


@dataclass
class LoopSettings:
    """Length, precision, hardware and checkpoints of the training.

    Args:
        epochs: passes over the training data; None means 20, or more if 20 epochs have fewer than 600 steps and
            loop.max_steps is not set
        max_steps: stop after this number of optimiser steps, or after the last epoch if that is earlier; None means no
            limit
        precision: Lightning's name of a precision, e.g. 32-true, bf16-mixed, 16-mixed
        accumulate: number of batches whose gradients are accumulated before each optimiser step
        chunk_size: rows of a view embedded at a time, so that only their activations are in memory; the loss is still
            that of the whole batch, but activations are computed twice; None embeds all rows at once
        clip: maximum gradient norm; None does not clip
        accelerator: cpu, gpu, ...; auto selects the fastest available
        devices: number of processes on this machine (overridden by torchrun)
        strategy: auto, ddp, fsdp, ...
        sync_batchnorm: share the statistics of batch normalisation between processes
        checkpoint_every: maximum number of optimiser steps between two checkpoints; ends of epochs are saved as well,
            if at least 10 steps have passed
        evaluate_every: epochs between two quick evaluations on the validation split, written to probes.csv; 0 for none
        patience: stop if retrieval on the validation split does not improve in this many consecutive evaluations, and
            keep the best network; 0 trains to the end and keeps the last network. There is an evaluation after every
            epoch or, in longer runs, about 25 in total, regardless of evaluate_every. Has no effect with fewer than 10
            validation rows, or if views are drawn at random from one image or class
        log_every: optimiser steps between two rows of metrics.csv
    """

    epochs: int | None = None
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
    patience: int = 8
    log_every: int = 1

    def num_epochs(self, per_epoch: int) -> int:
        """Return the number of epochs, given the number of optimiser steps per epoch.

        Example:
            >>> [LoopSettings().num_epochs(steps) for steps in (1, 17, 1000)], LoopSettings(epochs=3).num_epochs(17)
            ([600, 36, 20], 3)
        """
        if self.epochs is not None:
            return self.epochs
        return MIN_EPOCHS if self.max_steps is not None else max(MIN_EPOCHS, math.ceil(MIN_STEPS / per_epoch))


@dataclass
class Config:
    """All settings of a run.

    Args:
        data: name of a data set; `m3g data` lists them
        data_options: options of the data set, e.g. --data_options.batch_size 128
        encoder: encoder of every view (`m3g encoders` lists them), or the class path of any nn.Module; None chooses by
            the kind of each view
        encoder_options: options of the encoder, e.g. --encoder_options.width 512
        view: settings of single views by name: how the view is read (--view.photo.kind image), its encoder
            (--view.photo.encoder conv --view.photo.pool 2), the earlier view with which it shares weights
            (--view.de.share en), whether the encoder is frozen (--view.photo.frozen true) and its peak learning rate
            (--view.photo.learning_rate 1e-5)
        shared: one encoder and one projection head for all views, which must have the same shape, instead of one per
            view; None chooses by the data set
        loss: name of a loss; `m3g losses` lists them
        loss_options: options of the loss, e.g. --loss_options.temperature 0.1
        heads: projection and prediction heads
        teacher: the teacher
        optim: the optimiser
        loop: the training loop
        views_per_step: number of views that the loss compares at a time; None means all, or for the losses m3g and kl
            as many as are fast, because the complexity of their exact solver is n ** k
        subsets_per_step: number of random subsets of views_per_step views over which a step averages the loss; None
            means as many as are fast, at most 20
        view_dropout: probability of removing each entry (a view of a row) from the loss of a step, so that the network
            learns to handle missing views; every row keeps at least two of its views, if it has as many
        mismatch: detect entries that do not match their row and exclude them from the loss; `m3g audit` lists them
        logger: one or several of tensorboard, csv, wandb, mlflow and trackio (--logger csv wandb), or none; metrics.csv
            and, if there are test rows, results.json are written in any case
        seed: determines all random choices; runs on a CPU with the same number of threads are bitwise reproducible
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

    def to_dict(self) -> dict[str, Plain]:
        """Return the settings as plain values for YAML and JSON."""
        content = dataclasses.asdict(self)
        content["optim"]["betas"] = list(self.optim.betas)
        return content

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_dict(cls, content: object, *, origin: Origin = "") -> Config:
        """Return the validated settings of a plain dictionary; omitted settings have their defaults.

        Settings from files and from the command line are validated here.
        """
        _reject_classes(content, origin)
        config = _build(cls, content, origin)
        check(config)
        return config

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """Read the settings of a YAML file."""
        return cls.from_dict(read_yaml(path), origin=str(path))


def flat(content: Mapping[str, Plain], prefix: str = "") -> dict[str, Plain]:
    """Flatten nested settings to dotted names.

    Example:
        >>> flat({"loop": {"epochs": 3}, "seed": 0})
        {'loop.epochs': 3, 'seed': 0}
    """
    values: dict[str, Plain] = {}
    for name, value in content.items():
        values |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return values


GROUPS: dict[str, type[DataclassInstance]] = {
    "heads": Heads,
    "teacher": TeacherSettings,
    "optim": OptimSettings,
    "loop": LoopSettings,
}


def _build(kind: type[Group], content: object, origin: Origin, group: str = "") -> Group:
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
            raise ValueError(f"{what} must have only the names {', '.join(known)}, got {name}{suggestion(name, known)}")
        values[name] = _build(GROUPS[name], value, origin, name) if kind is Config and name in GROUPS else value
        typed(kind, {name: values[name]}, prefix=file + path)
    return kind(**values)


def _file(origin: Origin, path: str) -> str:
    """Return the prefix of a message about a setting: the file from which it was read, if any."""
    if isinstance(origin, Mapping):
        origin = next((file for name, file in origin.items() if f"{name}.".startswith(f"{path}.")), "")
    return f"{origin}: " if origin else ""


def _reject_classes(content: object, origin: Origin, path: str = "") -> None:
    """Reject `class_path` anywhere: only `encoder` may name a class, subject to --trust."""
    if isinstance(content, Mapping):
        if "class_path" in content:
            what = _file(origin, path.rstrip(".")).removesuffix(": ") or "settings"
            raise ValueError(
                f"{what} must not have class_path, got {content['class_path']!r}: only the setting encoder may name a "
                "class."
            )
        for name, part in content.items():
            _reject_classes(part, origin, f"{path}{name}.")
    elif isinstance(content, (list, tuple)):
        for part in content:
            _reject_classes(part, origin, path)
