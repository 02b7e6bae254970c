"""Gradient flow of a loss on free points: the paper's Figure 1, used by `m3g flow`.

The points of n objects in k views are the parameters; there is no network. They move in the plane or on the sphere by
a fixed number of gradient steps on a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from m3g import _checks, losses
from m3g.costs import all_edges, as_cost
from m3g.losses import matching_gap
from m3g.losses.entropy import DEFAULT_EPSILON, DEFAULT_TEMPERATURE
from m3g.solvers import solve

SPACES = {"plane": 2, "sphere": 3}
COSTS = {"plane": "sqeuclidean", "sphere": "cv"}  # default cost
PLANE_LOSSES = ("m3g", "infonce-pwe")
MAX_TUPLES = 5000  # maximum number of tuples for the linear program


@dataclass(frozen=True)
class Moment:
    """State of a flow after a step.

    Attributes:
        step: number of finished steps.
        points: (k, n, d).
        loss, gap: the loss and the matching gap of these points.
        tuples: (s, k), the tuples that have mass in the best polymatching for epsilon = 0.
        matched: fraction of the n objects whose k points form such a tuple and have no mass in other tuples.
    """

    step: int
    points: Tensor
    loss: float
    gap: float
    tuples: Tensor
    matched: float


@dataclass(frozen=True)
class Setting:
    """Parameters of a flow, except the initial points.

    Args:
        space: "plane" or "sphere".
        epsilon, temperature: weight of the entropy in the matching gap: `epsilon` or, if None, `temperature`. If both
            are None, epsilon is 0.05. The temperature of InfoNCE is `temperature`, or 0.1 if None.
        cost: cost of the matching gap; None means the squared distance in the plane and the circular variance on the
            sphere.
        steps: number of steps.
        rate: learning rate of Adam.
    """

    space: str = "plane"
    epsilon: float | None = None
    temperature: float | None = None
    cost: str | None = None
    steps: int = 60
    rate: float = 0.02

    def __post_init__(self) -> None:
        _checks.one_of("space", self.space, SPACES)
        for name in ("epsilon", "temperature", "rate"):
            if getattr(self, name) is not None:
                _checks.positive(name, getattr(self, name))
        _checks.positive_int("steps", self.steps)
        as_cost(self.cost_name)

    @property
    def cost_name(self) -> str:
        return COSTS[self.space] if self.cost is None else self.cost

    @property
    def on_sphere(self) -> bool:
        return self.space == "sphere"


def start(n: int, k: int, *, space: str = "plane", seed: int = 0) -> Tensor:
    """Return points (k, n, d) drawn uniformly in the unit square, or on the sphere."""
    _checks.one_of("space", space, SPACES)
    _checks.seed("seed", seed)
    n, k = _checks.whole("n", n, least=2), _checks.whole("k", k, least=2)
    if k > 10:
        raise ValueError(f"k must be at most 10, got {k}.")
    if n**k > MAX_TUPLES:
        raise ValueError(f"n ** k must be at most {MAX_TUPLES}, got {n} ** {k} = {n**k}: use fewer objects or views.")
    random = torch.Generator().manual_seed(seed)
    if space == "plane":
        return torch.rand(k, n, 2, generator=random, dtype=torch.float64)
    return normalize(torch.randn(k, n, 3, generator=random, dtype=torch.float64), dim=-1)


def distance_infonce(points: Tensor, *, temperature: float) -> Tensor:
    """Return InfoNCE of points (k, n, d) with similarity -|a_i - b_j|² / 2, averaged over ordered pairs of views.

    On the sphere, it equals the loss `infonce-pwe` with `symmetric=True`, whose similarity is
    ⟨a_i, b_j⟩ = 1 - |a_i - b_j|² / 2. In the plane, an inner product would grow with the distance from the origin, and
    the flow would diverge.
    """
    label = torch.arange(points.shape[1], device=points.device)
    terms = []
    for l, m in all_edges(len(points)):
        logits = -(points[l].unsqueeze(1) - points[m].unsqueeze(0)).square().sum(-1) / (2 * temperature)
        terms += [cross_entropy(logits, label), cross_entropy(logits.T, label)]
    return torch.stack(terms).mean()


def loss_value(name: str, points: Tensor, setting: Setting) -> Tensor:
    """Return the loss of the given name at these points."""
    if name == "m3g":
        return gap_of(points, setting)
    if name == "infonce-pwe":
        return distance_infonce(points, temperature=setting.temperature or DEFAULT_TEMPERATURE)
    value: Tensor = losses.build(name)(points)
    return value


def check_loss(name: str, space: str) -> None:
    """Validate a loss: one of `PLANE_LOSSES` in the plane, and any loss that requires no teacher on the sphere."""
    if space == "plane":
        _checks.one_of("loss in the plane", name, PLANE_LOSSES)
    else:
        without_teacher = [other for other in losses.available() if not losses.build(other).needs_teacher]
        _checks.one_of("loss", name, without_teacher)


def gap_of(points: Tensor, setting: Setting) -> Tensor:
    """Return the matching gap with the cost and epsilon of the flow."""
    epsilon, temperature = setting.epsilon, setting.temperature
    if epsilon is None and temperature is None:
        epsilon = DEFAULT_EPSILON
    return matching_gap(
        points,
        epsilon=epsilon,
        temperature=temperature if epsilon is None else None,
        cost=setting.cost_name,
        normalize=setting.on_sphere,
        tol=1e-6,
    )


def best_tuples(points: Tensor, cost: str) -> tuple[Tensor, float]:
    """Return the tuples (s, k) of the best polymatching for epsilon = 0, and the value of `Moment.matched`."""
    n = points.shape[1]
    coupling = solve(as_cost(cost)(points), epsilon=0.0, solver="linear-program").coupling()
    correct = coupling[(torch.arange(n),) * len(points)] > (1 - 1e-6) / n
    return (coupling > 1e-6 / n).nonzero(), float(correct.double().mean())


def descend(points: Tensor, name: str, setting: Setting) -> list[Moment]:
    """Return the moments of gradient descent on a loss with Adam: the start, and the state after every step."""
    check_loss(name, setting.space)
    points = points.clone().requires_grad_()
    optimizer = torch.optim.Adam([points], lr=setting.rate)
    moments = []
    for step in range(setting.steps + 1):
        value = loss_value(name, points, setting)
        with torch.no_grad():
            gap = value.item() if name == "m3g" else gap_of(points, setting).item()
        tuples, matched = best_tuples(points.detach(), setting.cost_name)
        moments.append(Moment(step, points.detach().clone(), value.item(), gap, tuples, matched))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if setting.on_sphere:
            with torch.no_grad():
                points.copy_(normalize(points, dim=-1))
    return moments


def first_matched_step(moments: Sequence[Moment]) -> int | None:
    """Return the step from which every object is matched correctly; None if an object is mismatched at the end."""
    wrong = [moment.step for moment in moments if moment.matched < 1]
    if not wrong:
        return moments[0].step
    return None if wrong[-1] == moments[-1].step else wrong[-1] + 1


def evenly(flows: Sequence[Sequence[Moment]], count: int) -> list[int]:
    """Return the indices of about `count` moments between which the points move by about equal distances.

    Example:
        >>> still, far = torch.zeros(2, 2, 2), torch.ones(2, 2, 2)
        >>> moments = [Moment(i, p, 0.0, 0.0, still, 0.0) for i, p in enumerate([still, far, far, far, still])]
        >>> evenly([moments], 3)
        [0, 1, 4]
    """
    steps = len(flows[0])
    displacement = torch.zeros(steps, dtype=torch.float64)
    for moments in flows:
        points = torch.stack([moment.points for moment in moments]).double()
        displacement[1:] += torch.linalg.vector_norm(points[1:] - points[:-1], dim=-1).mean((1, 2))
    path = displacement.cumsum(0)
    targets = torch.linspace(0, float(path[-1]), min(count, steps), dtype=torch.float64)
    indices = torch.searchsorted(path, targets - 1e-12).clamp(max=steps - 1)
    return sorted({0, *indices.tolist(), steps - 1})


def start_middle_end(flows: Sequence[Sequence[Moment]]) -> list[int]:
    """Return the indices of the start, of a moment in the middle of the movement, and of the end."""
    last = len(flows[0]) - 1
    indices = evenly(flows, 2 * last + 1)
    return [0, indices[len(indices) // 2] if len(indices) > 2 else last // 2, last]
