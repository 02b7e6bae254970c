"""Full precision inside, the user's setting outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

# Exponents, summed over the pairs, that the range of the type holds with room for the scalings.
SINGLE_RANGE, DOUBLE_RANGE = 60.0, 500.0

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
        self.contexts: list[contextlib.AbstractContextManager] = [torch.no_grad()]
        if torch.is_autocast_enabled(device.type):
            self.contexts.append(torch.autocast(device.type, enabled=False))
        if not _already_full():
            self.contexts.append(_full_matmul())

    def __enter__(self) -> None:
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *raised: Any) -> None:
        for context in reversed(self.contexts):
            context.__exit__(*raised)


def _already_full() -> bool:
    try:
        return torch.get_float32_matmul_precision() == "highest" and _global_setting() in ("none", "ieee")
    except RuntimeError:  # torch refuses to answer where old and new settings were mixed
        return False


def _global_setting() -> str:
    return getattr(torch.backends, "fp32_precision", "none")


@contextlib.contextmanager
def _full_matmul() -> Iterator[None]:
    if _BACKENDS:
        before = [backend.fp32_precision for backend in _BACKENDS]
        for backend in _BACKENDS:
            backend.fp32_precision = "ieee"
        try:
            yield
        finally:
            for backend, value in zip(_BACKENDS, before):
                backend.fp32_precision = value
    else:
        setting = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(setting)


def vector_dtype(device: torch.device) -> torch.dtype:
    """The type of potentials: vectors are cheap, so float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
