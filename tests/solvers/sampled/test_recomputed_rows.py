"""Tables beyond the memory limit are recomputed in chunks: equal results, bounded memory."""

import pytest
import torch

import m3g
from m3g.solvers.sampled import ascent as list_ascent
from m3g.solvers.sampled import recomputed_rows as tables
from m3g.solvers.sampled import rounds as sampled
from m3g.solvers.sampled.draws import GeneratorDraws
from m3g.solvers.sampled.recomputed_rows import Rows
from solvers.memory import LiveBytes
from solvers.noisy import gap_and_gradient, noisy_views

COSTS = {"cv": m3g.CircularVariance(), "csd": m3g.CircularStd(), "pairs": m3g.PairwiseCost("sqeuclidean")}


def lower_limit(monkeypatch, limit):
    for module in (tables, sampled):
        monkeypatch.setattr(module, "memory_limit", lambda device: limit)


def solved(views, cost, epsilon=0.1, tol=1e-8, **settings):
    solver = m3g.Sampled(**{"rank": 512, "seed": 0, **settings})
    return gap_and_gradient(views, epsilon, solver, tol, cost=COSTS[cost])


def is_kept(solution):
    stored_rows = solution.coupling_form.kernel.tables
    return all(rows.stored is not None for rows in ([stored_rows] if isinstance(stored_rows, Rows) else stored_rows))


@pytest.mark.filterwarnings("ignore::m3g.solvers.SamplingWarning")
@pytest.mark.parametrize(
    ("cost", "form", "k", "n"),
    [("cv", "products", 4, 11), ("cv", "tuples", 4, 11), ("csd", "tuples", 3, 14), ("pairs", "tuples", 3, 14)],
)
def test_a_streamed_solve_equals_a_stored_one(monkeypatch, cost, form, k, n):
    views = noisy_views(k, n, batch=(2,), dtype=torch.float64)
    epsilon = 0.5 if cost == "pairs" else 0.1
    # With some seeds a Newton step is shortened by a factor that depends on its component in the null space:
    # that component is rounding.
    settings = {"form": form, "epsilon": epsilon, "rank": 128, "seed": 2}
    gap, gradient, stored = solved(views, cost, **settings)
    monkeypatch.setattr(tables, "STORED_FRACTION", 0)
    monkeypatch.setattr(tables, "CHUNK_BYTES", 2_600)
    # Otherwise, Newton steps would be equally accurate but differ by more than rounding.
    monkeypatch.setattr(list_ascent, "can_be_stored", lambda *_: True)
    same_gap, same_gradient, streamed = solved(views, cost, **settings)
    assert is_kept(stored)
    assert not is_kept(streamed)
    assert bool((streamed.error <= 1e-8).all())
    torch.testing.assert_close(same_gap, gap, atol=1e-8, rtol=0)
    torch.testing.assert_close(same_gradient, gradient, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(streamed.standard_error, stored.standard_error, atol=0, rtol=1e-6)
    torch.testing.assert_close(streamed.relative_gradient_error, stored.relative_gradient_error, atol=0, rtol=1e-6)
    torch.testing.assert_close(streamed.coupling(), stored.coupling(), atol=1e-7, rtol=0)
    torch.testing.assert_close(streamed.pair_marginal(0, 2), stored.pair_marginal(0, 2), atol=1e-7, rtol=0)
    draws = [
        s.coupling_form.draw(100, GeneratorDraws(views.device, torch.Generator().manual_seed(1)))
        for s in (stored, streamed)
    ]
    assert torch.equal(*draws)


@pytest.mark.parametrize(("cost", "form"), [("cv", "products"), ("cv", "tuples"), ("csd", "auto")])
def test_memory_stays_below_the_limit_for_every_rank(monkeypatch, cost, form):
    views = noisy_views(3, 160)
    with LiveBytes() as stored:
        gap, gradient, solution = solved(views, cost, rank=2048, form=form, tol=1e-3)
    assert is_kept(solution)
    limit = stored.peak // 3
    lower_limit(monkeypatch, limit)
    del solution
    with LiveBytes() as streamed:
        same_gap, same_gradient, solution = solved(views, cost, rank=2048, form=form, tol=1e-3)
    assert not is_kept(solution)
    assert streamed.peak < limit
    assert abs(float(same_gap - gap)) < float(solution.standard_error)
    assert float(torch.cosine_similarity(same_gradient.flatten(), gradient.flatten(), dim=0)) > 0.99


@pytest.mark.parametrize(("cost", "form"), [("cv", "products"), ("cv", "tuples"), ("csd", "auto")])
def test_memory_stays_below_the_limit_with_many_features(monkeypatch, cost, form):
    views = noisy_views(4, 6, d=1024)
    gap, gradient, _ = solved(views, cost, rank=400, epsilon=0.2, tol=1e-3, form=form)
    limit = 2**23  # one vector of features per sample takes a fifth of it
    lower_limit(monkeypatch, limit)
    with LiveBytes() as live:
        same_gap, same_gradient, solution = solved(views, cost, rank=400, epsilon=0.2, tol=1e-3, form=form)
    assert is_kept(solution)
    assert live.peak < limit
    torch.testing.assert_close(same_gap, gap, atol=1e-5, rtol=0)
    torch.testing.assert_close(same_gradient, gradient, atol=1e-5, rtol=1e-3)


def test_the_gradient_of_many_points_forms_no_matrix_of_pairs():
    n = 1000
    with LiveBytes() as live:
        _, gradient, solution = solved(noisy_views(3, n), "cv", rank=512, epsilon=0.2, tol=1e-3, form="products")
    assert live.largest < n * n * gradient.element_size()
    assert solution.converged
    assert float(gradient.norm()) > 0


def test_a_requested_accuracy_may_require_recomputed_rows(monkeypatch):
    lower_limit(monkeypatch, 2**20)
    views = noisy_views(3, 32, dtype=torch.float64)
    _, _, coarse = solved(views, "cv", rank=256, epsilon=0.05, tol=1e-3, form="tuples")
    _, _, fine = solved(views, "cv", rank=256, epsilon=0.05, tol=1e-3, form="tuples", rtol=0.08)
    assert is_kept(coarse)
    assert not is_kept(fine)
    assert float(fine.relative_gradient_error) < 0.1 < float(coarse.relative_gradient_error)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (1000, "solver='sampled' with 256 rows must be at most .* GiB, got .* GiB: use a smaller rank"),
        (
            120_000,
            "one row of a table of solver='sampled' must be at most .* GiB, got .*: use fewer points or smaller",
        ),
    ],
)
def test_a_row_larger_than_memory_is_an_error(monkeypatch, limit, message):
    lower_limit(monkeypatch, limit)
    views = noisy_views(3, 6000, d=2, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        solved(views, "cv", form="products")


def test_rows_are_computed_once_if_stored_and_otherwise_in_every_pass():
    computed = []

    def make(rows):
        computed.append((rows.start, rows.stop))
        return rows

    kept, streamed = Rows(make, count=5, step=5), Rows(make, count=5, step=2)
    assert computed == [(0, 5)]
    for rows in (kept, streamed):
        for _ in range(2):
            assert [chunk for chunk, _ in rows][-1].stop == 5
    assert computed == [(0, 5)] + 2 * [(0, 2), (2, 4), (4, 5)]
