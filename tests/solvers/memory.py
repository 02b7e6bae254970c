"""Memory of the tensors of a solve."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Count the bytes of the tensors that are allocated inside the context.

    `peak` is the largest number of bytes at a time, `largest` that of a single tensor.
    """

    def __init__(self):
        super().__init__()
        self.current = self.peak = self.largest = 0
        self.counted = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        inputs = {leaf.untyped_storage() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(out):
            storage = leaf.untyped_storage() if isinstance(leaf, torch.Tensor) else None
            if storage is not None and storage not in self.counted and storage not in inputs:
                self.counted.add(storage)
                self.current += storage.nbytes()
                self.largest = max(self.largest, storage.nbytes())
                weakref.finalize(storage, self._freed, storage.nbytes())
        self.peak = max(self.peak, self.current)
        return out

    def _freed(self, num_bytes):
        self.current -= num_bytes
