"""Detection of mismatched entries.

`m3g reproduce mismatch`: 100 runs of about 3 minutes on one core; no data required. Expected with a tenth of the
entries swapped: 90.5 % of these are among the 15 % least reliable entries, and R@1 of InfoNCE is 27.8 % without and
37.8 % with `mismatch`.

On the six-view digits, a fraction of the training entries is swapped: replaced by entries of other objects. Every loss
is trained with and without `mismatch`, on a different split for every seed. The encoders are MLPs, trained for 20
epochs. Detection is measured by the area under the ROC curve, and by the fraction of the swapped entries that are among
the 15 % least reliable entries. The effect of the swaps is measured on clean test rows (linear probe, R@1).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from m3g import _checks
from m3g.data.tables.arrays import Arrays
from m3g.evaluation import evaluate
from m3g.experiments.engine.spec import Experiment, Labels, Request, RunSpec, Settings
from m3g.experiments.mismatch import tables as mismatch_tables
from m3g.experiments.mismatch.tables import FIRST, SCORES
from m3g.experiments.runner.full import config_of, difference
from m3g.experiments.runner.quick import fit_quickly
from m3g.training.runs.embed import embed
from m3g.training.settings.config import Config

METHODS = ("m3g", "infonce-pwe")
SHARES = (0.0, 0.1, 0.2, 0.4, 0.6)  # fractions of swapped entries


def runs(request: Request) -> list[RunSpec]:
    """Return runs with and without `mismatch` for every fraction of swapped entries and seed; small fractions first."""
    specs = []
    for share in SHARES:
        for seed in range(request.seeds):
            for loss in filter(request.wants, METHODS):
                for mismatch in (False, True):
                    config = Config(loss=loss, seed=seed, mismatch=mismatch)
                    config.data_options = {"split_seed": seed + 1, "swapped": share}
                    if request.miniature:
                        config.loop.max_steps, config.data_options["views"] = 6, ["fourier", "karhunen", "zernike"]
                    labels: Labels = {"arm": loss, "share": share, "mismatch": mismatch, "seed": seed}
                    specs.append(RunSpec("mismatch", {"config": difference(config)}, labels))
    return specs


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float]:
    """Train; evaluate the embeddings on test rows, which are not swapped, and the detection on training rows."""
    module, views = fit_quickly(config_of(settings), folder)
    assert isinstance(views, Arrays)
    numbers = evaluate(
        embed(module.net, views, "train"), embed(module.net, views, "test"), transfer=False, polymatching=False
    ).numbers
    scores = {name: numbers[name] for name in SCORES}
    if module.mismatch is not None:
        index = views.datasets["train"].index  # type: ignore[attr-defined]
        odds, excluded = module.mismatch.log_odds(index), module.mismatch.excluded(index)
        swapped = torch.zeros_like(excluded)
        if views.swapped_from is not None:
            swapped = views.swapped_from != torch.arange(odds.shape[1])
            scores |= detection(odds, swapped) | {"wrong_left_out": float(excluded[swapped].float().mean())}
        scores["right_left_out"] = float(excluded[~swapped].float().mean())
    return scores


def detection(odds: Tensor, swapped: Tensor) -> dict[str, float]:
    """Return how well the log odds (k, n) detect the swapped entries, bool (k, n).

    `auc` is the area under the ROC curve, `among_first` the fraction of swapped entries that are among the 15 % with
    the lowest log odds.

    Example:
        >>> odds = torch.tensor([[-1.0, 2.0, 3.0, 4.0]])
        >>> detection(odds, odds < 0)
        {'auc': 1.0, 'among_first': 1.0}
    """
    metrics = _checks.extra("sklearn.metrics", "train")
    odds, swapped = odds.flatten(), swapped.flatten()
    first = odds.argsort(stable=True)[: round(FIRST * len(odds)) or 1]
    auc = metrics.roc_auc_score(swapped.numpy(), -odds.numpy())
    return {"auc": float(auc), "among_first": float(swapped[first].sum() / swapped.sum())}


EXPERIMENT = Experiment(
    name="mismatch",
    runs=runs,
    work=work,
    collect=mismatch_tables.collect,
    methods=METHODS,
    seconds=180.0,
    seeds={"laptop": 5},
)
