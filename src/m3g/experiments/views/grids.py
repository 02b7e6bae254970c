"""Grids of `m3g reproduce views`: six settings per arm, and options that are common to them.

An arm is a loss, possibly under another name with separate options. All losses with a temperature have the same grid.
The scores require that the views are aligned in one space, which some losses do not guarantee. There are two remedies:

- `BIAS`: `gram` and `pmrl` do not change if points change sign, and `symile` does not change if a feature changes sign
  in two views. From random weights, they align the views only up to signs. With a common bias in the last layer, all
  points start in one half-space, which prevents this.
- `READOUT`: `mcca` is invariant to linear maps of a view, so linear CCA of the embeddings of the training rows is
  applied after training (`m3g.evaluation.CanonicalViews`), as in deep CCA; for `gram` and `symile` the grid includes
  settings with and without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from m3g.experiments.engine.spec import Change, Settings

CANONICAL = "readout.canonical"
# Arms that are a loss under another name with separate options.
LOSS_OF = {"m3g-rising": "m3g"}
# Options of the loss that are not in its grid.
FIXED: dict[str, Settings] = {
    "infonce-pwe": {"symmetric": True},
    "infonce-ave": {"symmetric": True},
    "m3g-rising": {"temperature": 0.05},
    "kl": {"of": "pairs"},
    "lejepa": {"directions": 64},
    "symile": {"rescale": True},
}
BIAS = {"gram": 0.5, "pmrl": 0.5, "symile": 0.5}
READOUT = {"mcca": True, "gram": False, "symile": False}


def _each(option: str, values: Sequence[float]) -> list[Change]:
    return [{option: value} for value in values]


def _with_and_without_cca(temperatures: Sequence[float]) -> list[Change]:
    return [{TEMPERATURE: t, CANONICAL: canonical} for canonical in (False, True) for t in temperatures]


NUM_SETTINGS = 6
TEMPERATURE, RATE = "loss_options.temperature", "optim.learning_rate"
TEMPERATURES = _each(TEMPERATURE, (0.025, 0.05, 0.1, 0.2, 0.5, 1.0))
LEARNING_RATES = _each(RATE, (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2))
GRIDS: dict[str, list[Change]] = {
    "m3g": TEMPERATURES,
    "infonce-pwe": TEMPERATURES,
    "infonce-ave": TEMPERATURES,
    "m3g-pairs": TEMPERATURES,
    "m3g-rest": TEMPERATURES,
    "m3g-rising": _each("loss_options.final_temperature", (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)),
    "polyview": TEMPERATURES,
    "mv-infonce": TEMPERATURES,
    "mv-dhel": TEMPERATURES,
    "vicreg": _each("loss_options.covariance", (0.1, 1.0, 5.0, 25.0, 100.0, 400.0)),
    "kl": TEMPERATURES,
    "gram": _with_and_without_cca((0.05, 0.2, 0.5)),
    "symile": _with_and_without_cca((0.05, 0.2, 0.5)),
    "pmrl": [
        {TEMPERATURE: t, "loss_options.contrast_temperature": u}
        for t, u in ((0.5, 0.1), (0.5, 0.2), (0.5, 0.5), (0.5, 1.0), (1.0, 0.2), (1.0, 0.5))
    ],
    "mmcr": _each("loss_options.compression", (0.0, 0.005, 0.05, 0.2, 0.5, 1.0)),
    "mcca": _each("loss_options.ridge", (0.01, 0.1, 0.5, 1.0, 2.0, 5.0)),
    "barlow-twins": _each("loss_options.redundancy", (0.0002, 0.001, 0.005, 0.02, 0.1, 0.5)),
    "lejepa": _each("loss_options.regularization", (0.005, 0.01, 0.02, 0.05, 0.2, 0.5)),
    "triangle": TEMPERATURES,
    "byol-ave": LEARNING_RATES,
    "byol-pwe": LEARNING_RATES,
}
