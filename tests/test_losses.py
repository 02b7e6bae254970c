"""Properties of every loss: interface, missing points, precision, teachers, error messages."""

from __future__ import annotations

import pytest
import torch

from m3g import losses

NAMES = losses.available()
TEACHABLE = [name for name in NAMES if losses.build(name).takes_teacher]
N = 8
pytestmark = pytest.mark.filterwarnings("ignore:mcca requires batches")  # which are small here


def batch(*, k=3, n=N, d=6, seed=0, dtype=torch.float32):
    return torch.randn(k, n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mask_with_missing_points(k=3, n=N):
    mask = torch.rand(k, n, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[:, :3] = True
    return mask


def build(name, **options):
    if "generator" in losses.options(name):
        options = {"generator": torch.Generator().manual_seed(0), **options}
    return losses.build(name, **options)


def value_and_gradient(name, views, **kwargs):
    views = views.clone().requires_grad_()
    value = build(name)(views, **kwargs)
    value.backward()
    return value.detach(), views.grad


@pytest.mark.parametrize("name", NAMES)
def test_accepts_a_sequence_and_a_tensor(name):
    views = batch()
    assert torch.equal(build(name)(views), build(name)(list(views)))


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_without_missing_points_has_no_effect(name):
    views = batch(dtype=torch.float64)
    value, gradient = value_and_gradient(name, views)
    masked_value, masked_gradient = value_and_gradient(name, views, mask=torch.ones(3, N, dtype=torch.bool))
    torch.testing.assert_close(masked_value, value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(masked_gradient, gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_values_at_missing_points_have_no_effect(name):
    mask = mask_with_missing_points()
    assert not mask.all()
    values, gradients = [], []
    for filling in (0.0, 1e3, float("nan"), float("inf")):
        views = batch()
        views[~mask] = filling
        value, gradient = value_and_gradient(name, views, mask=mask)
        values.append(value)
        gradients.append(gradient)
    assert values[0].isfinite()
    assert gradients[0].isfinite().all()
    assert (gradients[0][~mask] == 0).all()
    assert (gradients[0][mask] != 0).any()
    for value, gradient in zip(values[1:], gradients[1:]):
        assert torch.equal(value, values[0])
        assert torch.equal(gradient, gradients[0])


@pytest.mark.parametrize("name", NAMES)
def test_missing_points_change_the_loss(name):
    assert not torch.isclose(build(name)(batch(), mask=mask_with_missing_points()), build(name)(batch()), rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_under_autocast_is_close_to_float32(name, dtype):
    common = batch(k=1, n=256, d=64)
    views = common + 0.5 * batch(k=3, n=256, d=64, seed=1)
    reference = build(name)(views).item()
    half = views.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = build(name)(half)
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(reference, rel=1e-2)
    assert half.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_autocast_has_no_effect_inside_the_loss(name):
    views = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = build(name)(views)
    assert torch.equal(inside, build(name)(views))


def test_autocast_has_no_effect_inside_the_functions():
    views = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = losses.polyview(views=views), losses.infonce(views[0], views[1])
    assert torch.equal(inside[0], losses.polyview(views))
    assert torch.equal(inside[1], losses.infonce(views[0], views[1]))


@pytest.mark.parametrize("name", NAMES)
def test_aligned_views_have_finite_gradients(name):
    same = batch(k=1).expand(3, N, 6).contiguous()
    value, gradient = value_and_gradient(name, same)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_length_matters_only_without_normalisation(name):
    views, scales = batch(dtype=torch.float64), 0.5 + batch(d=1, dtype=torch.float64).abs()
    normalised = [build(name, normalize=True)(v) for v in (views, scales * views)]
    as_given = [build(name, normalize=False)(0.3 * v) for v in (views, scales * views)]
    torch.testing.assert_close(*normalised)
    assert not torch.isclose(*as_given)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_step_against_the_gradient_lowers_the_loss(name):
    views = batch(dtype=torch.float64)
    value, gradient = value_and_gradient(name, views)
    assert build(name)(views - 1e-3 * gradient / gradient.norm()) < value


@pytest.mark.parametrize("name", TEACHABLE)
def test_the_teacher_has_no_gradient_and_affects_the_loss(name):
    student, teacher = batch(dtype=torch.float64).requires_grad_(), batch(seed=9, dtype=torch.float64)
    teacher.requires_grad_()
    value = build(name)(student, teacher=teacher)
    value.backward()
    assert teacher.grad is None
    assert (student.grad != 0).any()
    assert not torch.isclose(value, build(name)(student, teacher=teacher.flip(1)))


@pytest.mark.parametrize("name", TEACHABLE)
def test_missing_points_of_the_teacher_have_no_effect(name):
    mask = mask_with_missing_points()
    values = []
    for filling in (0.0, float("nan")):
        teacher = batch(seed=9)
        teacher[~mask] = filling
        values.append(build(name)(batch(), mask=mask, teacher=teacher))
    assert torch.equal(*values)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(TEACHABLE)))
def test_a_loss_without_a_teacher_form_raises(name):
    with pytest.raises(ValueError, match=r"teacher must be None for \w+, which has no teacher form"):
        build(name)(batch(), teacher=batch())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("views", "mask", "message"),
    [
        (torch.randn(4, 5), None, r"views must be a tensor of shape .* got a tensor of shape \(4, 5\)"),
        (torch.randn(1, 4, 5), None, r"views must have k >= 2 views, got k = 1"),
        ([torch.randn(4, 5), torch.randn(3, 5)], None, r"views must have the same number of points n"),
        (torch.full((3, 4, 5), float("nan")), None, r"views must be finite.* got NaN in view 0, point 0"),
        (
            torch.ones(3, 4, 5),
            torch.ones(4, 3, dtype=torch.bool),
            r"mask must be a bool tensor of shape \(3, 4\)",
        ),
        (
            torch.ones(3, 4, 5),
            torch.zeros(3, 4, dtype=torch.bool),
            r"mask must be True in at least one view of every object",
        ),
    ],
)
def test_an_invalid_argument_is_named(name, views, mask, message):
    with pytest.raises(ValueError, match=message):
        build(name)(views, mask=mask)


@pytest.mark.parametrize(
    ("name", "views", "message"),
    [
        ("triangle", torch.randn(4, 5, 6), r"views must have k = 3 for a triangle, got k = 4"),
        ("gram", torch.randn(4, 5, 3), r"views must have k <= d for a volume, got shape \(4, 5, 3\)"),
        *(
            (name, torch.randn(3, 1, 6), r"views must have at least 2 points per view")
            for name in (
                *("m3g-pairs", "m3g-rest", "infonce-pwe", "infonce-ave", "symile", "gram", "triangle"),
                *("polyview", "mv-infonce", "mv-dhel", "vicreg"),
                *("pmrl", "lejepa", "barlow-twins", "mcca"),
            )
        ),
    ],
)
def test_an_unsupported_batch_is_an_error(name, views, message):
    with pytest.raises(ValueError, match=message):
        build(name)(views)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"m3g", "kl", "mmcr"}))
def test_a_batch_in_which_no_object_has_two_views_is_an_error(name):
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[torch.arange(6) % 3, torch.arange(6)] = True
    with pytest.raises(ValueError, match=r"mask must leave"):
        build(name)(batch(n=6), mask=mask)


def test_too_many_tuples_are_an_error_with_their_size():
    with pytest.raises(ValueError, match=r"at most 4.0 GiB, got 256.0 GiB: use negatives=\"n\""):
        losses.symile(torch.randn(4, 512, 4), negatives="n_squared")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.build("infonse"), r"name must be one of .*'infonce-pwe'.* got 'infonse'"),
        (
            lambda: losses.build("mmcr", temperature=1),
            r"'mmcr' must be among compression, normalize, gather",
        ),
        (
            lambda: losses.build("gram", temperature=-1.0),
            r"temperature must be a positive finite number, got -1.0",
        ),
        (lambda: losses.build("gram", label_smoothing=2.0), r"label_smoothing must be a number from 0"),
        (
            lambda: losses.build("symile", negatives="all"),
            r"negatives must be one of 'n', 'n_squared', got 'all'",
        ),
        (lambda: losses.build("m3g-pairs", rest=-1.0), r"rest must be a finite number of at least 0, got -1"),
        (lambda: losses.build("mmcr", compression=-1.0), r"compression must be a finite number of at least 0"),
        (lambda: losses.build("vicreg", variance=-1.0), r"variance must be a finite number of at least 0"),
        (lambda: losses.build("pmrl", contrast=-1.0), r"contrast must be a finite number of at least 0"),
        (lambda: losses.build("lejepa", regularization=2.0), r"regularization must be a number from 0 to 1, got 2.0"),
        (lambda: losses.LeJEPA(regularization="0.1"), r"regularization must be a finite number, got '0.1'"),
        (lambda: losses.build("lejepa", directions=0), r"directions must be a whole number of at least 1, got 0"),
        (lambda: losses.build("barlow-twins", redundancy=-1.0), r"redundancy must be a finite number of at least 0"),
        (lambda: losses.build("mcca", components=7)(batch()), r"components must be a whole number up to d = 6, got 7"),
        (lambda: losses.build("mcca", ridge=0.0), r"ridge must be a positive finite number, got 0.0"),
        (lambda: losses.build("infonce-pwe", first=4)(batch()), r"first must be a number of views up to k = 3"),
        (lambda: losses.polyview(batch(), temperature=0.0), r"temperature must be a positive finite number"),
        (lambda: losses.build("gram", anchor=3)(batch()), r"anchor must be the index of a view, from 0 to 2, got 3"),
        (
            lambda: losses.build("byol-pwe")(batch(), teacher=batch(n=3)),
            r"teacher must have the student's",
        ),
        (
            lambda: losses.polyview(batch()[None]),
            r"views must be one batch of shape \(k, n, d\), got shape \(1, 3",
        ),
        (
            lambda: losses.pairwise(batch(), lambda a, b: (a - b).sum(-1)),
            rf"pair_loss must be a function that returns a scalar tensor, got a tensor of shape \({N},\)",
        ),
    ],
)
def test_an_invalid_option_is_named(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert str(error.value).count("\n") == 0
