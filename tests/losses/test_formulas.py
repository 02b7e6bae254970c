"""Every loss and its gradient against the formula, in float64, with and without missing points."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses import literal
from m3g import losses

pytestmark = pytest.mark.filterwarnings("ignore:mcca requires batches")  # which are small here


def seeded():
    return torch.Generator().manual_seed(5)


# name: (constructor of the module, formula). The module is rebuilt for each call, so that shuffles restart.
CASES = {
    "infonce-pwe": (
        partial(losses.build, "infonce-pwe", temperature=0.3),
        lambda z, mask: literal.pairwise(z, mask, partial(literal.infonce, t=0.3), min_points=2),
    ),
    "infonce-pwe first symmetric": (
        partial(losses.build, "infonce-pwe", temperature=0.3, first=1, symmetric=True),
        lambda z, mask: literal.pairwise(
            z,
            mask,
            partial(literal.infonce, t=0.3),
            min_points=2,
            pairs=[(0, m) for m in range(1, len(z))] + [(m, 0) for m in range(1, len(z))],
        ),
    ),
    "infonce-ave": (
        partial(losses.build, "infonce-ave", temperature=0.3),
        lambda z, mask: literal.average_of_rest(z, mask, partial(literal.infonce, t=0.3), min_points=2),
    ),
    "infonce-ave without renormalisation": (
        partial(losses.build, "infonce-ave", temperature=0.3, renormalize=False),
        lambda z, mask: literal.average_of_rest(
            z, mask, partial(literal.infonce, t=0.3), min_points=2, renormalize=False
        ),
    ),
    "infonce-ave symmetric": (
        partial(losses.build, "infonce-ave", temperature=0.3, symmetric=True),
        lambda z, mask: literal.average_of_rest(z, mask, partial(literal.infonce, t=0.3), min_points=2, symmetric=True),
    ),
    "m3g-pairs": (
        partial(losses.build, "m3g-pairs", epsilon=0.2, rest=0.5, tol=1e-9),
        lambda z, mask: (
            (
                literal.pairwise(z, mask, partial(literal.gap_of_two, epsilon=0.2), min_points=2)
                + 0.5 * literal.average_of_rest(z, mask, partial(literal.gap_of_two, epsilon=0.2), min_points=2)
            )
            / 1.5
        ),
    ),
    "m3g-pairs of pairs only": (
        partial(losses.build, "m3g-pairs", epsilon=0.2, rest=0.0, tol=1e-9),
        lambda z, mask: literal.pairwise(z, mask, partial(literal.gap_of_two, epsilon=0.2), min_points=2),
    ),
    "m3g-rest": (
        partial(losses.build, "m3g-rest", temperature=0.4, tol=1e-9),
        lambda z, mask: literal.query_of_rest(z, mask, 0.4),
    ),
    "m3g-rest renormalised": (
        partial(losses.build, "m3g-rest", temperature=0.4, renormalize=True, tol=1e-9),
        lambda z, mask: literal.query_of_rest(z, mask, 0.4, renormalize=True),
    ),
    "m3g-rest of means": (
        partial(losses.build, "m3g-rest", temperature=0.4, cost="cv", tol=1e-9),
        lambda z, mask: literal.average_of_rest(
            z, mask, partial(literal.gap_of_two, epsilon=0.2), min_points=2, renormalize=False
        ),
    ),
    "byol-pwe": (
        partial(losses.build, "byol-pwe"),
        lambda z, mask: literal.pairwise(z, mask, literal.byol),
    ),
    "byol-pwe first": (
        partial(losses.build, "byol-pwe", first=2),
        lambda z, mask: literal.pairwise(
            z, mask, literal.byol, pairs=[p for p in permutations(range(len(z)), 2) if p[0] < 2]
        ),
    ),
    "byol-ave": (
        partial(losses.build, "byol-ave"),
        lambda z, mask: literal.average_of_rest(z, mask, literal.byol),
    ),
    "symile n": (
        lambda: losses.build("symile", temperature=0.2, generator=seeded()),
        lambda z, mask: literal.symile_shuffled(z, mask, 0.2, seeded()),
    ),
    "symile n_squared": (
        partial(losses.build, "symile", temperature=0.2, negatives="n_squared"),
        lambda z, mask: literal.symile_all_tuples(z, mask, 0.2),
    ),
    "symile rescaled": (
        lambda: losses.build("symile", temperature=0.2, rescale=True, generator=seeded()),
        lambda z, mask: literal.symile_shuffled(z, mask, 0.2 * z.shape[2] ** (1 - len(z) / 2), seeded()),
    ),
    "gram": (
        partial(losses.build, "gram", temperature=0.2),
        lambda z, mask: literal.gram(z, mask, 0.2),
    ),
    "gram anchor": (
        partial(losses.build, "gram", temperature=0.2, anchor=1, label_smoothing=0.0),
        lambda z, mask: literal.gram(z, mask, 0.2, anchor=1, smoothing=0.0),
    ),
    "triangle": (
        partial(losses.build, "triangle", temperature=0.2),
        lambda z, mask: literal.triangle(z, mask, 0.2),
    ),
    "polyview": (
        partial(losses.build, "polyview", temperature=0.2),
        lambda z, mask: literal.polyview(z, mask, 0.2),
    ),
    "mv-infonce": (
        partial(losses.build, "mv-infonce"),
        lambda z, mask: literal.mv_infonce(z, mask, 0.5),
    ),
    "mv-dhel": (
        partial(losses.build, "mv-dhel"),
        lambda z, mask: literal.mv_dhel(z, mask, 0.5),
    ),
    "mmcr": (
        partial(losses.build, "mmcr", compression=0.1),
        lambda z, mask: literal.mmcr(z, mask, 0.1),
    ),
    "vicreg": (
        partial(losses.build, "vicreg", normalize=True),
        literal.vicreg,
    ),
    "pmrl": (
        partial(losses.build, "pmrl", temperature=0.3, contrast_temperature=0.2, contrast=0.7),
        lambda z, mask: literal.pmrl(z, mask, 0.3, 0.2, 0.7),
    ),
    "lejepa": (
        lambda: losses.build("lejepa", regularization=0.2, directions=3, generator=seeded(), normalize=True),
        lambda z, mask: literal.lejepa(z, mask, 0.2, 3, seeded()),
    ),
    "barlow-twins": (
        partial(losses.build, "barlow-twins", redundancy=0.1, normalize=True),
        lambda z, mask: literal.pairwise(z, mask, partial(literal.barlow_twins, redundancy=0.1), min_points=2),
    ),
    "mcca": (
        partial(losses.build, "mcca"),
        lambda z, mask: literal.mcca(z, mask, None, 0.1),
    ),
    "mcca components": (
        partial(losses.build, "mcca", components=2, ridge=0.01),
        lambda z, mask: literal.mcca(z, mask, 2, 0.01),
    ),
}


@st.composite
def batches(draw):
    """Views (k, n, d) in float64 and a mask that leaves the first two objects complete."""
    k, n = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    d = draw(st.integers(k, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    views = torch.randn(k, n, d, generator=generator, dtype=torch.float64)
    mask = torch.rand(k, n, generator=generator) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    mask[:, :2] = True
    mask[draw(st.integers(0, k - 1)), ~mask.any(0)] = True
    return views, mask


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=12)
@given(batch=batches())
def test_agrees_with_its_formula(case, batch):
    views, mask = batch
    build, formula = CASES[case]
    if case == "triangle":
        views, mask = torch.cat([views, views.flip(0, 1)])[:3], torch.cat([mask, mask])[:3]
        mask[0, ~mask.any(0)] = True
    unit = views / views.norm(dim=-1, keepdim=True)
    all_present = torch.ones_like(mask)
    # A learned temperature is a float32 parameter, so a few of its digits are lost in float64.
    tolerances = {"rtol": 2e-6, "atol": 2e-7}
    with torch.no_grad():
        assert torch.isclose(build()(views), torch.tensor(formula(unit, all_present), dtype=views.dtype), **tolerances)
        expected = torch.tensor(formula(unit, mask), dtype=views.dtype)
        assert torch.isclose(build()(views, mask=mask), expected, **tolerances)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_pass_gradcheck(case, masked):
    views = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1]]).bool() if masked else None
    build, _ = CASES[case]
    assert torch.autograd.gradcheck(lambda x: build()(x, mask=mask), views.requires_grad_())


def test_byol_ave_without_renormalisation_is_byol_pwe():
    views = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ave = losses.build("byol-ave", renormalize=False)(views)
    assert torch.isclose(ave, losses.build("byol-pwe")(views))
    assert not torch.isclose(losses.build("byol-ave")(views), ave, rtol=1e-2)
