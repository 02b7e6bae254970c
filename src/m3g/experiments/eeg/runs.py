"""A few labels on signals of several channels (the paper's Table 3).

`m3g reproduce eeg --data SETS --sets sleep`: 94 runs of 100 to 3000 steps, 55 minutes on a shared core. Expected with
1000 labels per class, tuned: M3G 73.9 %, InfoNCE 73.1 to 74.3 %. `--sets raw`: 88 runs; expected 50 to 56 %, where
chance is 50 %.

Networks are trained on the channels, without labels. A linear combination of the channels and a linear classifier are
then trained with s labels per class, and tested on all rows of unseen subjects. The score is the balanced accuracy.

Laptop scale: `sleep`, spectral features of six sensors of SleepEDFx, an encoder per sensor; `raw`, one encoder for the
raw signals F3 F4 C3 C4 O1 O2 of EEGMAT, transferred to UCI EEG and its two groups of subjects; `windows`, one encoder
for up to 4000 windows of PhysioNet 2018, transferred to up to 4000 of SleepEDFx. Paper scale: all windows of PhysioNet
2018 and SleepEDFx, written by `m3g prepare` to the folders `pretrain` and `sleep`.

The paper trains InfoNCE with n = 64 and M3G with n = 16. Here InfoNCE over pairs is trained with both batch sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from m3g.data import Signals, ViewsData
from m3g.data.base import DEFAULT_BATCH_SIZE
from m3g.data.batch import TensorRows
from m3g.data.splits import SPLITS, Split
from m3g.evaluation import FewShot, few_shot_probe
from m3g.evaluation.few_shot import most_shots
from m3g.experiments.eeg import tables as eeg_tables
from m3g.experiments.engine.spec import Experiment, Labels, Prepare, Request, RunSpec, Settings, merged
from m3g.experiments.runner import full
from m3g.experiments.runner.arms import Tuned, other_lengths, temperature_then_rate
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.runner.references import REFERENCES, Inputs, Network, fit_labels, reference_runs
from m3g.experiments.sources.signals import (
    SENSORS,
    check_paper_windows,
    prepare_raw_eeg,
    prepare_sleep,
    prepare_windows,
)
from m3g.training import build_data
from m3g.training.settings.config import Config

Arm = tuple[str, int, Settings]  # loss, points per batch, options of the loss
# The two rows of the paper, and InfoNCE with the batch size of M3G.
MAIN: dict[str, Arm] = {
    "m3g, n = 16": ("m3g", 16, {}),
    "infonce-pwe, n = 64": ("infonce-pwe", 64, {"symmetric": True}),
    "infonce-pwe, n = 16": ("infonce-pwe", 16, {"symmetric": True}),
}
CONTROLS: dict[str, Arm] = {
    "infonce-pwe, n = 16, one direction": ("infonce-pwe", 16, {}),
    "infonce-ave, n = 16": ("infonce-ave", 16, {}),
}
# The paper's values, not chosen on validation rows.
UNTUNED: dict[str, Arm] = {
    "m3g, n = 16, untuned": ("m3g", 16, {"epsilon": 0.2}),
    eeg_tables.OTHER_SCALE: ("m3g", 16, {"epsilon": 0.2, "cost": "cv-algorithm2"}),
    "infonce-pwe, n = 64, untuned": ("infonce-pwe", 64, {"symmetric": True, "temperature": 0.5}),
}
PAPER: dict[str, Settings] = {"m3g": {"epsilon": 0.2}, "infonce-pwe": {"temperature": 0.5, "symmetric": True}}
METHODS = ("m3g", "infonce-pwe", "infonce-ave")
RATES = (3e-3, 1e-3, 1e-2)  # temperatures are compared at the first rate
STEPS = {"sleep": 1000, "raw": 200, "windows": 1000}
LENGTHS = (100, 300, 3000)  # other numbers of steps, for the arms `LENGTHS_OF`
LENGTHS_OF = ("m3g, n = 16", "infonce-pwe, n = 16")
# Sets of raw signals: the file for training the encoder, and the one to which it is transferred.
PRETRAIN = {"raw": "eegmat.npz", "windows": "pretrain_windows.npz"}
TARGET = {"raw": "uci_eeg.npz", "windows": "sleep_windows.npz"}
SHOTS = (10, 50, 100, 1000)
TUNING_SEED = 100


class Scores(TypedDict):
    """Scores of a few-shot probe.

    Attributes:
        validation: balanced accuracy on validation rows.
        shots, accuracy: balanced accuracy and accuracy on test rows, by the number of labels per class.
        test_rows: number of test rows.
        most_shots: largest possible number of labels per class.
    """

    validation: float
    shots: dict[str, float]
    accuracy: dict[str, float]
    test_rows: int
    most_shots: int


def laptop_config(data: str, loss: str, n: int, options: Settings, *, seed: int, steps: int) -> Settings:
    """Return the differences from the defaults of `m3g train`: the paper's optimiser and a small network."""
    if data == "sleep":
        source: Settings = {
            "data": "arrays",
            "data_options": {
                "paths": [f"{{data}}/sleep.npz:{name}" for name in SENSORS],
                "labels": "{data}/sleep.npz:stage",
                "groups": "{data}/sleep.npz:subject",
                "view_names": list(SENSORS),
                "val": 0.1,
                "test": 0.2,
            },
            "encoder": "mlp",
            "encoder_options": {"width": 64},
        }
    else:
        source = {
            "data": "signals",
            "data_options": {"paths": [f"{{data}}/{PRETRAIN[data]}"], "val": 0.2, "test": 0.0},
            "encoder": "eeg",
            "encoder_options": {"channels": [32, 32, 32], "kernels": [5, 3, 2], "dropout": 0.0, "pool": 4},
        }
    return merged(
        source,
        {
            "data_options": {"batch_size": n, "split_seed": seed},
            "loss": loss,
            "loss_options": dict(options),
            # In `sleep` and `raw`, M3G compares all views at once. The number of channels of `windows` is unknown here.
            "views_per_step": len(SENSORS) if loss == "m3g" and data != "windows" else None,
            "heads": {"embedding_size": 32, "hidden": None},
            "optim": {"min_learning_rate": 1e-5, "warmup_epochs": 0.0, "weight_decay": 5e-4, "betas": [0.9, 0.999]},
            "loop": {
                "epochs": 1000,
                "max_steps": steps,
                "clip": None,
                "evaluate_every": 0,
                "log_every": 100,
                "accelerator": "cpu",
            },
            "seed": seed,
        },
    )


def _run(data: str, arm: str, parts: Arm, seed: int, request: Request) -> RunSpec:
    config = laptop_config(data, *parts, seed=seed, steps=3 if request.miniature else STEPS[data])
    config["optim"]["learning_rate"] = RATES[0]
    labels: Labels = {"data": data, "arm": arm, "seed": seed, "stage": "test"}
    return RunSpec("eeg", {"config": config, "data": data}, labels)


def laptop_runs(request: Request) -> Iterator[RunSpec]:
    """Yield the paper's arms, the controls and the references of every data set, each after its grid if it has one."""
    for data in sets("laptop"):
        for tuned, untuned in ((MAIN, UNTUNED), (CONTROLS, {})):
            yield from _block(data, tuned, untuned, request)

        def reference(name: str, seed: int, data: str = data) -> list[RunSpec]:
            run = _run(data, name, ("m3g", 16, {}), seed, request)
            return [run.with_changes({"reference": name}, stage="reference")]

        yield from reference_runs(reference, request, tuning_seed=TUNING_SEED, rates=RATES)


def _block(data: str, arms: dict[str, Arm], untuned: dict[str, Arm], request: Request) -> Iterator[RunSpec]:
    tuned: dict[str, Tuned] = {}
    for arm, parts in arms.items():
        if request.wants(parts[0]):
            tuning = _run(data, arm, parts, TUNING_SEED, request)
            tuned[arm] = temperature_then_rate(tuning, RATES, has_temperature=True)
            yield from tuned[arm].runs
    for seed in range(request.seeds):
        for arm, grid in tuned.items():
            yield grid.chosen(_run(data, arm, arms[arm], seed, request))
        for arm, parts in untuned.items():
            if request.wants(parts[0]):
                yield _run(data, arm, parts, seed, request)
    if data == "sleep":
        for arm in filter(tuned.__contains__, LENGTHS_OF):
            yield from other_lengths(tuned[arm].chosen(_run(data, arm, arms[arm], 0, request)), request, LENGTHS)


def paper_runs(request: Request) -> Iterator[RunSpec]:
    """Yield the paper's two rows, InfoNCE with M3G's batch size, and M3G with epsilon in the scale of Algorithm 2."""
    for seed in range(request.seeds):
        arms: dict[str, Arm] = {arm: (loss, n, PAPER[loss]) for arm, (loss, n, _) in MAIN.items()}
        arms[eeg_tables.OTHER_SCALE] = ("m3g", 16, {**PAPER["m3g"], "cost": "cv-algorithm2"})
        for arm, (loss, n, options) in arms.items():
            if not request.wants(loss):
                continue
            config = merged(
                full.shipped("eeg"),
                {"loss": loss, "loss_options": options, "seed": seed,
                 "data_options": {"paths": "{data}/pretrain", "splits": "{data}/pretrain/split.csv", "batch_size": n}},
            )  # fmt: skip
            labels: Labels = {"data": "physionet", "arm": arm, "seed": seed, "stage": "test"}
            yield RunSpec("eeg", {"config": config, "data": "physionet"}, labels)


def runs(request: Request) -> Iterator[RunSpec]:
    return paper_runs(request) if request.scale == "paper" else laptop_runs(request)


def work(settings: Settings, folder: Path, data: Path) -> Scores:
    """Train, and evaluate probes with a few labels on validation and test subjects."""
    config = full.config_of(settings)
    if settings["data"] == "physionet":
        net, _ = full.trained(config, folder)
        sleep = data / "sleep"
        return few_shot(net, Signals(sleep, splits=sleep / "split.csv", seed=config.seed), seed=config.seed)
    if "reference" in settings:
        return few_shot(*_reference(settings, config, data), seed=config.seed)
    module, views = fit_quickly(config, folder)
    views = views if settings["data"] == "sleep" else target_of(settings["data"], data, config.seed)
    return few_shot(module.net, views, seed=config.seed)


def _reference(settings: Settings, config: Config, data: Path) -> tuple[Network, ViewsData]:
    """Return the network of a reference (`Inputs`, or trained on the labels of the target set), and the target set."""
    raw = settings["data"] in TARGET
    views = target_of(settings["data"], data, config.seed, batch_size=16) if raw else build_data(config)
    if settings["reference"] == "raw":
        return Inputs(signals=raw), views
    return fit_labels(config, views, joined=True), views


def few_shot(net: Network, data: ViewsData, *, seed: int) -> Scores:
    """Return the scores of probes of the embeddings of all channels, trained with s labels per class."""
    train, val, test = (_embedded(net, data, split) for split in SPLITS)
    most = most_shots(train[1])
    # The probe uses s rows per class for training and s for early stopping. If the rarest class has at least s but
    # fewer than 2 s rows, half of that number is used for each.
    shots = {s: min(s, most) for s in SHOTS if 2 * most >= s}
    scores = {str(s): _probe(train, test, used, seed) for s, used in shots.items()}
    return {
        "validation": _probe(train, val, min(100, most), seed).balanced_accuracy,
        "shots": {s: score.balanced_accuracy for s, score in scores.items()},
        "accuracy": {s: score.accuracy for s, score in scores.items()},
        "test_rows": len(test[1]),
        "most_shots": most,
    }


def _probe(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], shots: int, seed: int) -> FewShot:
    draws = 1 if shots > 100 else 3
    batch = 64 if shots > 100 else 16
    return few_shot_probe(*train, *test, shots=shots, draws=draws, batch_size=batch, seed=seed)


@torch.no_grad()
def _embedded(net: Network, data: ViewsData, split: Split) -> tuple[Tensor, Tensor]:
    """Return embeddings (k, n, d) and labels of a split, computed in large batches."""
    rows = data.datasets[split]
    assert isinstance(rows, TensorRows)
    assert rows.label is not None
    net.eval()
    parts = [net([view[i : i + 4096] for view in rows.views]) for i in range(0, len(rows), 4096)]
    return torch.cat(parts, dim=1), rows.label


def target_of(name: str, data: Path, seed: int, *, batch_size: int = DEFAULT_BATCH_SIZE) -> Signals:
    """Return the data set to which an encoder of raw signals is transferred, with subjects split by the seed."""
    return Signals([data / TARGET[name]], val=0.2, test=0.2, split_seed=seed, seed=seed, batch_size=batch_size)


def sets(scale: str) -> dict[str, Prepare]:
    """Return the data sets of a scale by name, each with the function that writes or checks its files."""
    if scale == "paper":
        return {"physionet": check_paper_windows}
    return {"sleep": prepare_sleep, "raw": prepare_raw_eeg, "windows": prepare_windows}


EXPERIMENT = Experiment(
    name="eeg",
    runs=runs,
    work=work,
    collect=eeg_tables.collect,
    sets=sets,
    methods=(*METHODS, *REFERENCES),
    seconds=20.0,
    seeds={"laptop": 5, "paper": 5},
)
