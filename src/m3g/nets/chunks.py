"""Gradient caching: the loss and gradient of a whole batch, with only the activations of one chunk in memory."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from m3g import _checks as checks


def embed_in_chunks(encoder: Callable[..., Tensor], *inputs: object, chunk_size: int, **named_inputs: object) -> Tensor:
    """Embed a batch in chunks whose activations are discarded and recomputed in the backward pass.

    A contrastive loss requires all embeddings of a batch, but not all activations (GradCache). The forward pass keeps
    only the embeddings. The backward pass first computes the gradient of the loss with respect to all embeddings, then
    recomputes one chunk after the other and backpropagates its part of that gradient. Loss and gradients are those of
    `encoder(*inputs, **named_inputs)` up to rounding. Each chunk is encoded twice, or once if gradients are disabled.

    Every chunk is recomputed with the autocast state and the random numbers (torch, NumPy, Python) of its first pass,
    so that dropout and augmentations inside the encoder are reproduced. Generators that the encoder owns are not
    restored.

    Args:
        encoder: an `nn.Module`, or a method of one, that processes rows independently. Batch normalisation with the
            statistics of the batch does not, and is rejected. `DistributedDataParallel` synchronises the gradients
            once, whether it wraps the encoder or a module that calls this function.
        inputs, named_inputs: arguments of the encoder. All tensors, including those in lists, tuples and mappings, have
            n rows in dimension 0 and are split; anything else is passed to every call.
        chunk_size: rows per chunk.

    Returns:
        Embeddings (..., n, d).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> network, inputs = nn.Sequential(nn.Linear(20, 8), nn.Dropout()), torch.randn(64, 20)
        >>> embeddings = embed_in_chunks(network, inputs, chunk_size=16)
        >>> embeddings.shape
        torch.Size([64, 8])
        >>> embeddings.square().mean().backward()  # recomputes four chunks

    Reference: Gao, Zhang, Han, Callan, *Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup*, 2021,
    https://arxiv.org/abs/2101.06983.
    """
    checks.positive_int("chunk_size", chunk_size)
    network = encoder.module if isinstance(encoder, DistributedDataParallel) else encoder
    reject_batch_norm(network)
    n = _num_rows(inputs, named_inputs)
    embeddings = []
    for first in range(0, n, chunk_size):
        part = slice(first, first + chunk_size)
        # The forward pass of DDP prepares its reducer for one backward pass, so DDP is called only once, in the first
        # pass of the last chunk. All other calls use the wrapped module.
        calls = iter([encoder] if part.stop >= n else [])

        def run(
            rows: list[object], named_rows: dict[str, object], calls: Iterator[Callable[..., Tensor]] = calls
        ) -> Tensor:
            return next(calls, network)(*rows, **named_rows)

        rows = [_take(value, part) for value in inputs]
        named_rows = {name: _take(value, part) for name, value in named_inputs.items()}
        if torch.is_grad_enabled():
            chunk = checkpoint(run, rows, named_rows, use_reentrant=False, context_fn=_host_random_contexts)
        else:
            chunk = run(rows, named_rows)
        _check_embeddings(chunk, min(part.stop, n) - first)
        embeddings.append(chunk)
    return torch.cat(embeddings, dim=-2)


def reject_batch_norm(encoder: object) -> None:
    """Reject an encoder with batch normalisation, whose output for a row depends on the other rows of its chunk."""
    owner = encoder if isinstance(encoder, nn.Module) else getattr(encoder, "__self__", None)
    if not isinstance(owner, nn.Module):
        raise ValueError(f"encoder must be an nn.Module or a method of one, got {checks.described(encoder)}.")
    for name, module in owner.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            raise ValueError(
                "encoder must have no batch normalisation that uses statistics of the batch if chunk_size is set, "
                f"because they would be the statistics of one chunk, got {type(module).__name__} {name!r}: call its "
                "eval() if it has running statistics, or use LayerNorm."
            )


def _num_rows(*values: object) -> int:
    """Return the common size of dimension 0 of all tensors."""
    sizes = sorted({tensor.shape[0] if tensor.ndim else 0 for value in values for tensor in _tensors(value)})
    if len(sizes) != 1 or sizes[0] < 1:
        got = f"tensors with {' and '.join(map(str, sizes))} rows" if sizes else "no tensor"
        raise ValueError(f"inputs must be tensors with the same number of rows, at least 1, got {got}.")
    return sizes[0]


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def _take(value: object, part: slice) -> object:
    """Return the rows `part` of all tensors in nested lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return value[part]
    if isinstance(value, Mapping):
        return {name: _take(each, part) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_take(each, part) for each in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def _check_embeddings(chunk: object, rows: int) -> None:
    if not isinstance(chunk, Tensor) or chunk.ndim < 2 or chunk.shape[-2] != rows:
        got = f"shape {checks.shape_of(chunk)}" if isinstance(chunk, Tensor) else checks.described(chunk)
        raise ValueError(f"encoder must return a tensor (..., n, d) for a chunk of n = {rows} rows, got {got}.")


def _host_random_contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
    """Return contexts for the first pass of a chunk and its replay, with the same random numbers of NumPy and Python.

    `torch.utils.checkpoint` restores only the generators of torch.
    """
    restore: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def record() -> Iterator[None]:
        restore.append(_restorer())
        yield

    @contextlib.contextmanager
    def replay() -> Iterator[None]:
        restore_current = _restorer()
        restore[0]()
        try:
            yield
        finally:
            restore_current()

    return record(), replay()


def _restorer() -> Callable[[], None]:
    """Return a function that restores the current random states of NumPy and Python."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002 - encoders may use it

    def restore() -> None:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)

    return restore
