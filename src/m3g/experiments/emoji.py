"""Transfer to unseen emoji vendors: like DomainNet, with many classes.

`m3g reproduce emoji --data FOLDER`: 375 runs, 7.4 hours on a shared core. Expected mean over unseen vendors, with a
teacher: M3G 23.6 %, InfoNCE 24.1 to 24.5 %, BYOL 21.2 to 21.3 %. The folder contains `emoji_5vendors_32.npz` or images
`emoji/VENDOR/NAME.png`, in which images of the same NAME show the same emoji.

A small convolutional network is trained on class-aligned batches of n = 16 emoji of four vendors at 16 pixels; the
fifth vendor is unseen. An image of the unseen vendor is assigned to the emoji with the nearest mean of features over
the seen vendors. A fifth of the emoji are excluded from training. They are used to choose the settings of a method, by
assigning images of each seen vendor to the means of the other three, and to measure transfer to new classes.

Every method with a temperature has the same grids: six temperatures at a learning rate of 0.003, then three other
learning rates at the best temperature. The grid of methods without a temperature has only the four learning rates.
Intervals are over the unseen vendors.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from m3g.data.images.domain_arrays import read_domains
from m3g.evaluation.paired import paired
from m3g.experiments.engine.spec import Experiment, Labels, Prepare, Request, Result, RunSpec, Settings, merged
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import holm_verdicts
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import hours, markdown, write_table
from m3g.experiments.runner import arms
from m3g.experiments.runner.arms import RATE, TEMPERATURE, Tuned, temperature_then_rate
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.references import REFERENCES, fit_or_reference
from m3g.experiments.sources.emoji import NEW, TRAIN, VENDORS, prepare_emoji
from m3g.training.loop.nonfinite import NonFiniteLoss

POINTS, STEPS = 16, 3000
SEEDS, TUNING_SEED = 4, 100
RATES = (3e-3, 1e-3, 1e-2, 3e-4)  # temperatures are compared at the first rate
TEMPERATURES = (0.015, *arms.TEMPERATURES)
LENGTHS = (300, 1000, 6000)  # other numbers of steps, for the arms `LENGTHS_OF`
LENGTHS_OF = ("m3g, no teacher", "infonce-ave, no teacher")
TUNED_ON = "openmoji"  # the unseen vendor in the grids and in the runs with other numbers of steps

TEACHER = {"teacher": {"enabled": True}, "heads": {"embedding_size": 64, "hidden": 256, "predictor": True}}
NO_TEACHER = {"teacher": {"enabled": False}, "heads": {"embedding_size": 64, "hidden": 256, "predictor": False}}
SYMMETRIC = {"loss_options": {"symmetric": True}}
ARMS: dict[str, Settings] = {
    "m3g": {"loss": "m3g", **TEACHER},
    "infonce-ave": {"loss": "infonce-ave", **TEACHER},
    "infonce-pwe": {"loss": "infonce-pwe", **TEACHER},
    "byol-ave": {"loss": "byol-ave", **TEACHER},
    "byol-pwe": {"loss": "byol-pwe", **TEACHER},
    "m3g-pairs": {"loss": "m3g-pairs", **TEACHER},
    "m3g, no teacher": {"loss": "m3g", **NO_TEACHER},
    "infonce-ave, no teacher": {"loss": "infonce-ave", **NO_TEACHER, **SYMMETRIC},
    "infonce-pwe, no teacher": {"loss": "infonce-pwe", **NO_TEACHER, **SYMMETRIC},
    "m3g-pairs, no teacher": {"loss": "m3g-pairs", **NO_TEACHER},
    "vicreg, no teacher": {"loss": "vicreg", **NO_TEACHER},
}
# InfoNCE over pairs as in the paper, at common temperatures, not chosen on validation rows.
UNTUNED: dict[str, Settings] = {
    f"infonce-pwe, untuned at {value:g}": merged(ARMS["infonce-pwe"], {"loss_options": {"temperature": value}})
    for value in (0.1, 0.5)
}


def config(arm: Settings, unseen: str, *, seed: int, steps: int) -> Settings:
    """Return the differences of a run from the defaults of `m3g train`."""
    base: Settings = {
        "data": "domain-arrays",
        "data_options": {
            "path": f"{{data}}/{TRAIN}",
            "held_out": [unseen],
            "batch_size": POINTS,
            "points_per_epoch": POINTS * steps,
            "val": 0.0,
            "test": 0.0,
        },
        "encoder": "conv",
        "encoder_options": {"channels": [16, 32, 64], "pool": 2},
        "optim": {"warmup_epochs": 0.05, "learning_rate": RATES[0]},
        "loop": {"epochs": 1, "evaluate_every": 0, "log_every": 100, "accelerator": "cpu"},
        "seed": seed,
    }
    return merged(base, arm)


def _run(name: str, arm: Settings, unseen: str, seed: int, request: Request, *, reference: str = "") -> RunSpec:
    settings: Settings = {"config": config(arm, unseen, seed=seed, steps=3 if request.miniature else STEPS)}
    settings |= {"reference": reference} if reference else {}
    labels: Labels = {"data": "emoji", "arm": name, "unseen": unseen, "seed": seed, "stage": "test"}
    return RunSpec("emoji", settings, labels)


def runs(request: Request) -> Iterator[RunSpec]:
    """Yield the grids and the first seed of all arms without a teacher, then of those with one, then all other runs."""
    tuned: dict[str, Tuned] = {}
    for group in (
        [name for name in ARMS if _without_teacher(name)],
        [name for name in ARMS if not _without_teacher(name)],
    ):
        for name in filter(request.wants, group):
            tuning = _run(name, ARMS[name], TUNED_ON, TUNING_SEED, request)
            has_temperature = not name.startswith(("byol", "vicreg"))
            tuned[name] = temperature_then_rate(
                tuning, RATES, has_temperature=has_temperature, temperatures=TEMPERATURES
            )
            yield from tuned[name].runs
        yield from _seed(0, {name: tuned[name] for name in group if name in tuned}, request)
    for seed in range(request.seeds):
        yield from _seed(seed, tuned, request)
        for name, arm in UNTUNED.items():
            if request.wants(name):
                yield from (_run(name, arm, unseen, seed, request) for unseen in VENDORS)
        for name in filter(request.wants, REFERENCES):
            if name != "raw" or seed == 0:
                yield from (_run(name, ARMS["m3g"], unseen, seed, request, reference=name) for unseen in VENDORS)
        if seed == 0:
            yield from _lengths(tuned, request)


def _lengths(tuned: Mapping[str, Tuned], request: Request) -> Iterator[RunSpec]:
    for name in filter(tuned.__contains__, LENGTHS_OF):
        for steps in LENGTHS:
            options = {"points_per_epoch": POINTS * (steps // 100 if request.miniature else steps)}
            run = _run(name, ARMS[name], TUNED_ON, 0, request)
            run = run.with_changes({"config": {"data_options": options}}, stage="length", steps=steps)
            yield tuned[name].chosen(run)


def _without_teacher(name: str) -> bool:
    return name.endswith("no teacher")


def _seed(seed: int, tuned: Mapping[str, Tuned], request: Request) -> Iterator[RunSpec]:
    for unseen in VENDORS:
        for name, tuning in tuned.items():
            yield tuning.chosen(_run(name, ARMS[name], unseen, seed, request))


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float | str]:
    """Train on the seen vendors; evaluate on the unseen one and on emoji excluded from training."""
    run = config_of(settings)
    try:
        net, views = fit_or_reference(run, settings.get("reference"), folder)
    except NonFiniteLoss as error:
        return {"validation": 0.0, "diverged": str(error).splitlines()[0][:200]}
    unseen = str(run.data_options["held_out"][0])
    trained, new = (_features(net, data / file) for file in (TRAIN, NEW))
    seen = list(views.view_names)
    retrieved = [nearest_mean(new[vendor], [new[other] for other in seen if other != vendor]) for vendor in seen]
    return {
        "validation": statistics.fmean(retrieved),
        "test": nearest_mean(trained[unseen], [trained[name] for name in seen]),
        "new": nearest_mean(new[unseen], [new[name] for name in seen]),
    }


@torch.no_grad()
def _features(net: nn.Module, path: Path) -> dict[str, Tensor]:
    """Return, by vendor, the features (classes, d) of its images, of unit length."""
    net.eval()
    return {
        name: normalize(torch.cat([net.features([part])[0] for part in images.split(512)]), dim=-1)  # type: ignore[operator]
        for name, (images, _) in read_domains(path).items()
    }


def nearest_mean(points: Tensor, vendors: list[Tensor]) -> float:
    """Return the fraction of points (n, d) whose nearest class mean, by cosine, is that of their own class.

    Row i belongs to class i, in the points and in the features (n, d) of each of the `vendors`. The mean of a class is
    over the vendors.

    Example:
        >>> nearest_mean(torch.eye(3), [torch.eye(3), torch.eye(3).flip(0) + torch.eye(3)])
        1.0
    """
    means = normalize(torch.stack(vendors).mean(0), dim=-1)
    return float(((points @ means.T).argmax(1) == torch.arange(len(points))).double().mean())


def sets(scale: str) -> dict[str, Prepare]:
    return {"emoji": prepare_emoji}


def by_vendor(results: list[Result], metric: str) -> dict[str, dict[str, list[float]]]:
    """Return, by arm and unseen vendor, the values of all seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in results:
        labels = row["labels"]
        if labels["stage"] == "test" and metric in row["metrics"]:
            values.setdefault(labels["arm"], {}).setdefault(labels["unseen"], []).append(row["metrics"][metric])
    return {arm: values[arm] for arm in (*ARMS, *UNTUNED, *REFERENCES) if arm in values}


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md` and the figures; return the text."""
    parts = [hours(results)]
    for metric, title in (("test", "Emoji seen in training, unseen vendor"), ("new", "New emoji, unseen vendor")):
        scores = by_vendor(results, metric)
        if scores:
            parts += [f"## {title}", _levels(scores), _differences(scores)]
    parts += ["## Settings chosen", _chosen(results)]
    parts += length_table(results, lambda row: row["labels"]["unseen"], folder / "steps", test_to_train=0.0)
    shown = {arm: by for arm, by in by_vendor(results, "test").items() if "," not in arm}
    if shown:
        groups = {
            name: {
                arm: (100 * statistics.fmean(by[name]), _spread(by[name])) for arm, by in shown.items() if name in by
            }
            for name in VENDORS
        }
        figures.points(groups, folder / "emoji", ylabel="accuracy on the unseen vendor, %")
    return write_table(parts, folder)


def _spread(values: list[float]) -> float:
    return 100 * statistics.stdev(values) if len(values) > 1 else 0.0


def _levels(scores: Mapping[str, Mapping[str, list[float]]]) -> str:
    rows = [["accuracy, %", *VENDORS, "mean", "seeds"]]
    for arm, by in scores.items():
        cells = [f"{100 * statistics.fmean(by[name]):.1f}" if name in by else "—" for name in VENDORS]
        complete = len(by) == len(VENDORS)
        mean = f"{100 * statistics.fmean(map(statistics.fmean, by.values())):.1f}" if complete else "—"
        rows.append([arm, *cells, mean, str(min(map(len, by.values())))])
    return markdown(rows)


def _differences(scores: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return a table of the differences between M3G (with a teacher if the other arm has one) and every other arm."""
    means = {arm: {name: statistics.fmean(part) for name, part in by.items()} for arm, by in scores.items()}
    compared = {}
    for arm in means:
        ours = "m3g, no teacher" if _without_teacher(arm) else "m3g"
        if arm != ours and ours in means and arm not in REFERENCES:
            compared[ours, arm] = paired(means[ours], means[arm])
    verdicts = holm_verdicts(compared)
    rows = [["", "minus", "points", "after Holm's correction"]]
    rows += [[*key, str(compared[key]), verdict] for key, verdict in verdicts.items()]
    note = "95 % intervals over the unseen vendors (means over seeds), because vendors differ more than seeds."
    return f"{markdown(rows)}\n\n{note}" if verdicts else ""


def _chosen(results: list[Result]) -> str:
    rows = [["loss", "temperature", "learning rate", "validation, %"]]
    for arm in ARMS:
        grid = [row for row in results if row["labels"]["arm"] == arm and row["labels"]["stage"] == "grid"]
        for row in sorted(grid, key=lambda row: -row["metrics"]["validation"])[:1]:
            changes = {RATE: RATES[0], **(row.get("chosen") or {}), **row["labels"]}
            cells = [f"{changes[name]:g}" if name in changes else "—" for name in (TEMPERATURE, RATE)]
            rows.append([arm, *cells, f"{100 * row['metrics']['validation']:.1f}"])
    return markdown(rows)


EXPERIMENT = Experiment(
    name="emoji",
    runs=runs,
    work=work,
    collect=collect,
    sets=sets,
    methods=(*ARMS, *UNTUNED, *REFERENCES),
    seconds=120.0,
    seeds={"laptop": SEEDS},
)
