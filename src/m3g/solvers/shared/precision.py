"""Full precision inside, the user's setting outside."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch
from torch import Tensor

from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.processes import agreed

# Exponents, summed over the pairs, that the range of the type holds with room for the scalings.
SINGLE_RANGE, DOUBLE_RANGE = 60.0, 500.0
# Exponents that float32 holds to 1e-4, for solvers that subtract the largest of them before the exponential.
ROUNDED_RANGE = 1e3
# float32 sums of n² entries do not converge below this error.
SINGLE_TOLERANCE = 5e-6

# Settings that let a float32 matrix product use fewer bits (TF32 on CUDA, bfloat16 in oneDNN). The per-backend
# names are there since torch 2.9; before, one global setting stands for all.
_BACKENDS = [
    backend
    for backend in (getattr(torch.backends.cuda, "matmul", None), getattr(torch.backends.mkldnn, "matmul", None))
    if backend is not None and hasattr(backend, "fp32_precision")
]


class full_precision:
    """Matrix products in full float32 or better whatever was set; without autocast, without a graph.

    A class and not a generator because small problems are solved in the time a few context managers take.
    """

    def __init__(self, device: torch.device):
        self.contexts: list[contextlib.AbstractContextManager[object]] = []
        if torch.is_grad_enabled():
            self.contexts.append(torch.no_grad())
        if torch.is_autocast_enabled(device.type):
            self.contexts.append(torch.autocast(device.type, enabled=False))
        if not _already_full():
            self.contexts.append(_full_matmul)

    def __enter__(self) -> None:
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *raised: Any) -> None:
        for context in reversed(self.contexts):
            context.__exit__(*raised)


def _already_full() -> bool:
    """Whether no setting of the user's asks for fewer bits; what a solve of another thread has set does not count."""
    try:
        return torch.get_float32_matmul_precision() == "highest" and _global_setting() in ("none", "ieee")
    except RuntimeError:  # torch refuses to answer where old and new settings were mixed
        return False


def _global_setting() -> str:
    return getattr(torch.backends, "fp32_precision", "none")


class _FullMatmul(contextlib.AbstractContextManager[None]):
    """Full precision while any thread is inside: the first that enters changes the setting, the last restores it.

    torch has no such setting for one thread alone. What the user sets while a solve runs is left as it is.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_inside = 0
        self.before: list[str] = []
        self.asked = ""

    def __enter__(self) -> None:
        with self.lock:
            if self.num_inside == 0:
                self.asked = _setting()
                self.before = [backend.fp32_precision for backend in _BACKENDS]
                for backend in _BACKENDS:
                    backend.fp32_precision = "ieee"
                if not _BACKENDS:
                    torch.set_float32_matmul_precision("highest")
            self.num_inside += 1

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.num_inside -= 1
            if self.num_inside > 0:
                return
            if not _BACKENDS:
                torch.set_float32_matmul_precision(self.asked)
            elif _setting() == self.asked:
                for backend, value in zip(_BACKENDS, self.before):
                    backend.fp32_precision = value


def _setting() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "mixed"


_full_matmul = _FullMatmul()


def needs_double(tensor: Tensor, reach: float, tol: float) -> bool:
    """Whether float32 is not enough for exponents up to `reach`, or for this tolerance, and the device has float64."""
    if tensor.dtype != torch.float32 or vector_dtype(tensor.device) == torch.float32:
        return False
    return tol < SINGLE_TOLERANCE or not reach <= ROUNDED_RANGE


def largest_magnitude(tensor: Tensor) -> float:
    """The largest entry in absolute value."""
    low, high = tensor.aminmax()
    return agreed(max(-low.item(), high.item()))
