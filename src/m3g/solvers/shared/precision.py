"""Precision of solvers: full float32 matrix products regardless of settings, and the choice of float64."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType

import torch
from torch import Tensor

from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.processes import agreed

# Maximum exponent of a tuple, summed over pairs, for kernels in float32 and float64; the rest of the range is for
# scalings.
SINGLE_RANGE, DOUBLE_RANGE = 60.0, 500.0
# Maximum exponent in float32 for solvers in the log domain, so that exponents have an error of at most 1e-4.
ROUNDED_RANGE = 1e3
# Tolerance below which solves in float32 may not converge.
SINGLE_TOLERANCE = 5e-6

# Settings that allow float32 matrix products with fewer bits (TF32 on CUDA, bfloat16 in oneDNN). The settings per
# backend exist since torch 2.9; older versions have one global setting.
_BACKENDS = [
    backend
    for backend in (getattr(torch.backends.cuda, "matmul", None), getattr(torch.backends.mkldnn, "matmul", None))
    if backend is not None and hasattr(backend, "fp32_precision")
]


class full_precision:
    """Context with matrix products in full precision regardless of settings, and without autocast and gradients.

    It is a class because entering several generator contexts would take as long as solving a small problem.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in reversed(self.contexts):
            context.__exit__(kind, error, trace)


def _already_full() -> bool:
    """Return whether no setting reduces precision, and no other thread has changed a setting that it will restore."""
    if _full_matmul.num_inside > 0:
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest" and _global_setting() in ("none", "ieee")
    except RuntimeError:  # torch raises if old and new settings were mixed
        return False


def _global_setting() -> str:
    return getattr(torch.backends, "fp32_precision", "none")


class _FullMatmul(contextlib.AbstractContextManager[None]):
    """Context with full precision while any thread is inside it.

    torch has no such setting per thread, so the first thread that enters changes the global setting, and the last one
    restores it. With torch 2.9 or later, a change of the setting by the user in the meantime is kept.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_inside = 0
        self.before: list[str] = []
        self.user_setting = ""

    def __enter__(self) -> None:
        with self.lock:
            if self.num_inside == 0:
                self.user_setting = _setting()
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
                torch.set_float32_matmul_precision(self.user_setting)
            elif _setting() == self.user_setting:
                for backend, value in zip(_BACKENDS, self.before):
                    backend.fp32_precision = value


def _setting() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "mixed"


_full_matmul = _FullMatmul()


def needs_double(tensor: Tensor, reach: float, tol: float) -> bool:
    """Return whether a float32 problem requires float64, because of exponents up to `reach` or of the tolerance.

    Always False if the device does not support float64.
    """
    if tensor.dtype != torch.float32 or vector_dtype(tensor.device) == torch.float32:
        return False
    return tol < SINGLE_TOLERANCE or not reach <= ROUNDED_RANGE


def largest_magnitude(tensor: Tensor) -> float:
    """Return the largest absolute value of a tensor, as computed by rank 0 if several processes share a solve."""
    low, high = tensor.aminmax()
    return agreed([max(-low.item(), high.item())])[0]
