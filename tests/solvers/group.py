"""Processes that share a solve, simulated by threads: their exchanges wait for each other and are sums over threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from m3g.solvers.shared.processes import CARRIED, Processes


class Member(Processes):
    """One of several threads that exchange tensors as processes do."""

    def __init__(self, rank, count, meeting, sent):
        object.__setattr__(self, "device", torch.device("cpu"))
        for name, value in {"_rank": rank, "_count": count, "_meeting": meeting, "_sent": sent}.items():
            object.__setattr__(self, name, value)

    rank = property(lambda self: self._rank)
    count = property(lambda self: self._count)

    def _exchange(self, own):
        """Return the tensors of all threads."""
        self._sent[self.rank] = own
        self._meeting.wait(20)
        everything = list(self._sent)
        self._meeting.wait(20)
        return everything

    def _all_reduce(self, numbers, *, failed=False):
        padded = [float(failed), *numbers, *[0.0] * (CARRIED - len(numbers))]
        return [sum(each) for each in zip(*self._exchange(padded))]

    def reduced(self, tensor, by="SUM"):
        self._synchronise()
        together = torch.stack(self._exchange(tensor))
        return {"SUM": together.sum, "MIN": together.amin, "MAX": together.amax}[by](0)

    def joined(self, own, n, *, dim=1):
        self._synchronise()
        together = torch.cat(self._exchange(own), dim)
        assert together.shape[dim] == n
        return together


def in_group(count, function):
    """Return `function(processes)` of every member of a group."""
    meeting, sent = threading.Barrier(count), [None] * count
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda rank: function(Member(rank, count, meeting, sent)), range(count)))
