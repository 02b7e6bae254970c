"""The loss under various settings: dtypes, precision, compiled code, disabled gradients, invalid arguments."""

import subprocess
import sys
import warnings

import pytest
import torch

import m3g
import reference
from m3g.losses.convergence import ConvergenceWarning


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast_are_supported(dtype):
    views = reference.noisy_views(3, 64, 32, dtype=torch.float32)
    expected = m3g.matching_gap(views, epsilon=0.05)
    half = views.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gap = m3g.M3GLoss(epsilon=0.05)(half)
    assert gap.dtype == torch.float32
    gap.backward()
    assert half.grad.dtype == dtype
    torch.testing.assert_close(gap, expected, rtol=0.01, atol=0)


def test_the_users_matrix_precision_is_neither_used_nor_changed():
    views = reference.noisy_views(3, 64, 64, dtype=torch.float32)
    expected = m3g.matching_gap(views)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        from m3g.solvers.shared.precision import full_precision

        with full_precision(torch.device("cpu")):
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        torch.testing.assert_close(m3g.matching_gap(views), expected, atol=1e-6, rtol=0)
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_loss_supports_compiled_code():
    layer = torch.nn.Linear(8, 4).double()
    loss = m3g.M3GLoss(epsilon=0.1, tol=1e-9)
    views = torch.randn(3, 6, 8, dtype=torch.float64)

    def step(x):
        return loss(layer(x)) * 2

    plain = step(views)
    plain.backward()
    expected = layer.weight.grad.clone()
    layer.weight.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, while it traces
        compiled = torch.compile(step, backend="eager")
        value = compiled(views)
        value.backward()
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(layer.weight.grad, expected)


def test_the_loss_supports_no_grad_and_inference_mode():
    views = reference.noisy_views(3, 5)
    with torch.no_grad():
        plain = m3g.matching_gap(views.requires_grad_())
    assert not plain.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(m3g.matching_gap(views.clone()), plain)


def test_the_gap_is_exact_at_epsilon_zero():
    views = reference.noisy_views(2, 6, noise=2.0)
    gap = m3g.matching_gap(views, epsilon=0, solver="linear-program")
    near = m3g.matching_gap(views, epsilon=0.002, tol=1e-6)
    assert float(gap) == pytest.approx(float(near), abs=0.01)


def test_a_solve_that_stops_early_warns_and_keeps_an_upper_bound():
    views = reference.noisy_views(3, 20, dtype=torch.float64)
    true = m3g.matching_gap(views, epsilon=0.01, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="stopped before its marginals were within tol=1e-09"):
        early = m3g.matching_gap(views, epsilon=0.01, tol=1e-9, solver=m3g.Factored(max_steps=2))
    assert float(early) >= float(true) - 1e-9
    many = reference.noisy_views(5, 20, dtype=torch.float64)  # too many tuples to list all of them
    with pytest.warns(ConvergenceWarning, match="the loss may be inaccurate, and its gradient is approximate"):
        # An estimate is not a bound.
        m3g.matching_gap(many, epsilon=0.1, tol=1e-9, solver=m3g.Sampled(max_steps=2, seed=0))


def test_a_loss_can_be_printed_and_reports_the_last_solve():
    loss = m3g.M3GLoss(epsilon=0.1)
    assert "epsilon=0.1" in repr(loss)
    loss(reference.noisy_views(3, 5))
    assert loss.last.num_steps >= 1
    assert loss.last.solver == "factored"


NAN = torch.randn(3, 4, 5)
NAN[1, 2, 0] = torch.nan
INF = torch.randn(3, 4, 5)
INF[2, 0, 0] = torch.inf
ZERO = torch.randn(3, 4, 5)
ZERO[0, 3] = 0


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        (torch.randn(1, 4, 5), {}, "views must have k >= 2 views, got k = 1"),
        ([torch.randn(4, 5)], {}, "views must have k >= 2 views, got k = 1"),
        (torch.randn(4, 5), {}, r"got a tensor of shape \(4, 5\)"),
        ([torch.randn(4, 5), torch.randn(3, 5)], {}, r"views must have the same number of points n, got n = \[4, 3\]"),
        ([torch.randn(4, 5), torch.randn(4, 6)], {}, "with the same d and the same batch shape"),
        (torch.randn(3, 0, 5), {}, "views must have no dimension of size 0"),
        (torch.ones(3, 4, 5, dtype=torch.int64), {}, "views must be floating point tensors, got torch.int64"),
        ("abc", {}, "views must be a tensor"),
        (NAN, {}, "views must be finite, non-zero vectors, got NaN in view 1, point 2"),
        (NAN, {"normalize": False}, "views must be finite vectors, got NaN in view 1, point 2"),
        (INF, {}, "got an infinite value in view 2, point 0"),
        (INF, {"cost": "csd"}, "got an infinite value in view 2, point 0"),
        (ZERO, {}, "got a zero vector, which normalize=True cannot scale to unit length, in view 0, point 3"),
        (torch.randn(3, 4, 5), {"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        (torch.randn(3, 4, 5), {"epsilon": float("nan")}, "epsilon must be a positive finite number, got nan"),
        (torch.randn(3, 4, 5), {"solver": "linear-program"}, "epsilon must be 0 with solver='linear-program'"),
        (torch.randn(3, 4, 5), {"tol": -1.0}, "tol must be a positive finite number, got -1.0"),
        (
            torch.randn(3, 4, 5),
            {"mask": torch.ones(4, 3, dtype=torch.bool)},
            r"mask must be a bool tensor of shape \(3, 4\)",
        ),
        (torch.randn(3, 4, 5), {"mask": torch.ones(3, 4)}, "mask must be a bool tensor of shape .* got torch.float32"),
        (torch.randn(3, 4, 5), {"mask": torch.zeros(3, 4, dtype=torch.bool)}, "got no view of object 0"),
        (torch.randn(3, 4, 5), {"cost": "x"}, "cost must be one of"),
        (torch.randn(3, 4, 5), {"solver": "x"}, "solver must be one of"),
        (torch.randn(8, 100, 5), {"cost": "csd", "solver": "sinkhorn"}, "use solver='sampled'"),
    ],
)
def test_invalid_arguments_are_named(views, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        m3g.matching_gap(views, **options)
    assert "\n" not in str(caught.value)


def test_a_teacher_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match="teacher must have the student's shape"):
        m3g.M3GLoss()(torch.randn(3, 4, 5), teacher=torch.randn(3, 5, 5))


def test_importing_the_package_loads_no_heavy_library():
    heavy = ["lightning", "transformers", "kornia", "sklearn", "pandas", "matplotlib", "torch._dynamo", "scipy"]
    code = f"import m3g, sys; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["m3g", "kl", "m3g-pairs", "m3g-rest"])
def test_solver_none_is_the_default_solver(name):
    views = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(m3g.losses.build(name, solver=None)(views), m3g.losses.build(name)(views))
