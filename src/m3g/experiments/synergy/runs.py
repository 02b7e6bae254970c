"""Comparison of losses on data whose views depend on each other only jointly.

`m3g reproduce synergy [--data FILES]`: 1611 runs, 8.3 hours on shared cores. Without `--data`, only the sets of
built-in digits and of bits are used. Expected on `digits`: `m3g-rest` and M3G with the product cost 89 %, Symile 77 %,
InfoNCE 11 % (chance: 10 %).

Objects have three views. In sets without synergy, each view alone determines the classes of the others. In sets of pure
synergy, any two views are independent, and together they determine the third (`m3g.experiments.synergy.sets`). Every
loss trains the same network (one MLP per view) with the same optimiser, number of steps and points per batch. Every
loss has a grid of seven temperatures; for the bits, losses that do not learn their temperature have nine. A grid is
evaluated on separate splits that no table contains: three splits each of `digits`, `digits-hard` and `bits-50` (for all
sets of bits), and one split of each other set. The best temperature on the validation rows of these splits is then used
on other splits. The score is the fraction of test objects whose last view is retrieved from the other two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.data import ViewsData
from m3g.data.splits import Split
from m3g.experiments.engine.spec import Experiment, Request, RunSpec, Settings, place_files
from m3g.experiments.runner.arms import grid_runs, other_lengths
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.synergy import tables
from m3g.experiments.synergy.scores import SCORES, recall, selected
from m3g.experiments.synergy.sets import SETS, TUNED_ON, sets
from m3g.nets import MultiViewNet
from m3g.training import build_data
from m3g.training.loop.nonfinite import NonFiniteLoss

SEEDS, TUNING_SEEDS = 5, (100,)
# On these sets, the temperature that is best on one split may be much worse on others.
MORE_TUNING_SEEDS = dict.fromkeys(("digits", "digits-hard", "bits-50"), (100, 101, 102))
POINTS, STEPS, EMBEDDING = 32, 1500, 32
TEMPERATURES = (0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
LOWER_TEMPERATURES = {"bits-50": (0.004, 0.0075)}  # added because the lowest of `TEMPERATURES` was chosen for Symile
LEARNED = ("gram", "triangle")  # learned temperatures stay above 0.01, so the lower ones are not tried
TEMPERATURE = "loss_options.temperature"
CANDIDATES = 1000  # maximum number of rows, and candidates, of retrieval
SUPERVISED = "supervised"
# Control: one temperature for four multiway losses, not chosen on validation rows, also with other numbers of steps.
UNTUNED = 0.12
UNTUNED_OF = ("m3g, product", "m3g, cv and product", "m3g-rest", "symile")
UNTUNED_ON = ("digits", "digits-hard", "bits-50", "bits-100")
LENGTHS, LENGTHS_ON = (200, 500, 4000), "digits-hard"
HELD_OUT: tuple[Split, Split] = ("val", "test")

ARMS: dict[str, Settings] = {
    "m3g, cv": {"loss": "m3g", "loss_options": {"cost": "cv"}},
    "m3g, product": {"loss": "m3g", "loss_options": {"cost": "product"}},
    "m3g, cv and product": {"loss": "m3g", "loss_options": {"cost": "2.25 * cv[:0.5] + product[0.5:]"}},
    "m3g-rest": {"loss": "m3g-rest", "loss_options": {"cost": "product"}},
    "symile": {
        "loss": "symile",
        "loss_options": {"rescale": True, "negatives": "n_squared", "learn_temperature": False},
    },
    "gram": {"loss": "gram"},
    "triangle": {"loss": "triangle"},
    "infonce-pwe": {"loss": "infonce-pwe", "loss_options": {"symmetric": True}},
    "infonce-ave": {"loss": "infonce-ave", "loss_options": {"symmetric": True}},
}
METHODS = (*ARMS, SUPERVISED)


def config(data: str, arm: str, *, seed: int, steps: int = STEPS) -> Settings:
    """Return the differences of a run from the defaults of `m3g train`."""
    names, file = SETS[data].views, f"{{data}}/{data}.npz"
    base: Settings = {
        "data": "arrays",
        "data_options": {
            "paths": [f"{file}:{view}" for view in names],
            "view_names": list(names),
            "labels": f"{file}:label",
            "groups": f"{file}:group",
            "val": 0.2,
            "test": 0.2,
            "batch_size": POINTS,
            "split_seed": seed + 1,
            "standardize": data != "captions",  # features of captions have constant length
        },
        "encoder_options": {"width": 128},
        "heads": {"embedding_size": EMBEDDING, "hidden": None},
        "optim": {"learning_rate": 2e-3},
        "loop": {"epochs": 10_000, "max_steps": steps, "accelerator": "cpu", "evaluate_every": 0},
        "seed": seed,
    }
    return base | ARMS.get(arm, {"loss": "m3g"})


def _run(data: str, arm: str, seed: int, request: Request) -> RunSpec:
    settings: Settings = {"config": config(data, arm, seed=seed, steps=3 if request.miniature else STEPS), "data": data}
    stage = "grid" if seed >= min(TUNING_SEEDS) else "test"
    settings |= {"stage": stage} | ({"reference": arm} if arm == SUPERVISED else {})
    return RunSpec("synergy", settings, {"data": data, "arm": arm, "seed": seed, "stage": stage})


def _runs(request: Request) -> Iterator[RunSpec]:
    for data in SETS:
        for arm in filter(request.wants, ARMS):
            tuned_on = TUNED_ON.get(data, data)
            # Runs of a grid are labelled with the set that uses the grid, so that `--sets` includes them.
            seeds = MORE_TUNING_SEEDS.get(tuned_on, TUNING_SEEDS)
            tried = [_run(tuned_on, arm, seed, request).with_changes(data=data) for seed in seeds]
            lower = () if arm in LEARNED else LOWER_TEMPERATURES.get(tuned_on, ())
            temperatures = (*lower, *TEMPERATURES)
            grid, candidates = grid_runs([{TEMPERATURE: tau} for tau in temperatures], tried)
            yield from grid
            for seed in range(request.seeds):
                yield replace(_run(data, arm, seed, request), candidates=candidates)
        if request.wants(SUPERVISED) and data != "captions":  # its labels are positions among four captions
            for seed in range(request.seeds):
                yield _run(data, SUPERVISED, seed, request)
    for data in UNTUNED_ON:
        for seed in range(request.seeds):
            for arm in filter(request.wants, UNTUNED_OF):
                options: Settings = {"config": {"loss_options": {"temperature": UNTUNED}}}
                run = _run(data, arm, seed, request).with_changes(options, stage="control", control=str(UNTUNED))
                yield run
                if data == LENGTHS_ON and seed == 0:
                    yield from other_lengths(run, request, LENGTHS)


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float | str]:
    """Train, choose the best retrieval score of `SCORES` on the validation rows and evaluate it on the test rows."""
    run, name = config_of(settings), settings["data"]
    if "reference" in settings:
        return {"found": supervised(build_data(run), seed=run.seed)}
    try:
        module, views_data = fit_quickly(run, folder, stacked=True)
    except NonFiniteLoss as error:
        return {"validation": 0.0, "diverged": str(error).splitlines()[0][:200]}
    others = torch.from_numpy(np.load(data / f"{name}.npz")["others"]) if name == "captions" else None
    val, test = (recalls(module.net, views_data, split, others=others) for split in HELD_OUT)
    best = max(val, key=val.__getitem__)
    result: dict[str, float | str] = {"validation": val[best]}
    if settings["stage"] == "test":
        result |= {"found": test[best], "score": best}
        result |= {f"found_{score}": value for score, value in test.items()}
        if name == "utterances":
            result["probe"] = probe(module.net, views_data)
    return result


@torch.no_grad()
def recalls(net: MultiViewNet, data: ViewsData, split: Split, *, others: Tensor | None) -> dict[str, float]:
    """Return, for each of `SCORES`, the fraction of rows whose last view is retrieved.

    `others` are the wrong candidates of each row; with None the candidates are the last views of all rows.
    """
    arrays, _, label = data.arrays(split)
    rows = slice(0, CANDIDATES)
    views = [normalize(view, dim=-1) for view in net([view[rows] for view in arrays])]
    if others is None:
        # The two labels of utterances are not classes of the last view; every utterance is its own class.
        label = None if label is None or len(torch.unique(label)) == 2 else label[rows]
        return {name: recall(score, views, label) for name, score in SCORES.items()}
    chosen = others[data.datasets[split].index[rows]]  # type: ignore[attr-defined]
    inputs = [view[rows] for view in arrays[:2]]
    wrong = torch.stack([normalize(net([*inputs, other])[2], dim=-1) for other in chosen.unbind(1)], 1)
    return {name: selected(score, views, wrong) for name, score in SCORES.items()}


@torch.no_grad()
def probe(net: MultiViewNet, data: ViewsData) -> float:
    """Return the accuracy of a logistic regression on the concatenated embeddings and their product."""
    linear = _checks.extra("sklearn.linear_model", "train")

    def features(split: Split) -> tuple[np.ndarray, np.ndarray]:
        arrays, _, label = data.arrays(split)
        assert label is not None
        views = normalize(net(arrays), dim=-1)
        joined = torch.cat([*views, views.prod(0) * EMBEDDING**0.5], -1)
        return joined.numpy(), label.numpy()

    return float(linear.LogisticRegression(max_iter=1000).fit(*features("train")).score(*features("test")))


def supervised(data: ViewsData, *, seed: int) -> float:
    """Return the accuracy of a network that predicts the label from the inputs of the first two views."""
    networks = _checks.extra("sklearn.neural_network", "train")

    def inputs(split: Split) -> tuple[np.ndarray, np.ndarray]:
        arrays, _, label = data.arrays(split)
        assert label is not None
        return torch.cat([view.flatten(1) for view in arrays[:2]], 1).numpy(), label.numpy()

    model = networks.MLPClassifier((256, 128), early_stopping=True, random_state=seed)
    return float(model.fit(*inputs("train")).score(*inputs("test")))


def demo(folder: Path, *, steps: int = 800, temperature: float = 0.12) -> dict[str, float]:
    """Return the fraction of sums of two built-in digits retrieved by some losses, with one temperature and split."""
    sets("laptop")["digits"](None, folder)
    fractions = {}
    for arm in ("m3g, cv", "infonce-ave", "symile", "m3g, product", "m3g-rest"):
        run = RunSpec("synergy", {"config": config("digits", arm, seed=0, steps=steps)}, {})
        settings = place_files(run.resolved({TEMPERATURE: temperature}), folder)
        metrics = work({**settings, "data": "digits", "stage": "test"}, folder / arm, folder)
        fractions[arm] = float(metrics["found"])
    return fractions


EXPERIMENT = Experiment(
    name="synergy",
    runs=_runs,
    work=work,
    collect=tables.collect,
    sets=sets,
    methods=METHODS,
    seconds=12.0,
    seeds={"laptop": SEEDS},
)
