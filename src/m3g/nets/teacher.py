"""Teacher: exponential moving average of the student, without its predictor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from m3g.nets.multiview import MultiViewNet


class Teacher(nn.Module):
    """Exponential moving average of a student: `teacher <- rho teacher + (1 - rho) student`.

    The teacher has no predictor. It receives no gradient and stays in evaluation mode, so that its targets have no
    dropout noise. Call `update` once per optimiser step, not once per accumulated batch.

    Example:
        >>> from m3g.nets import MLP, MultiViewNet, Projector
        >>> student = MultiViewNet(MLP(5), Projector(256))
        >>> teacher = Teacher(student)
        >>> teacher.update(student, 0.99)
    """

    def __init__(self, student: MultiViewNet):
        super().__init__()
        # The predictor may be large, so it is removed before copying.
        predictor, student.predictor = student.predictor, None
        try:
            self.net = copy.deepcopy(student)
        finally:
            student.predictor = predictor
        self.net.requires_grad_(False)
        self.eval()

    @torch.no_grad()
    def update(self, student: MultiViewNet, momentum: float) -> None:
        """Average the parameters with those of the student, with rho = `momentum`, and copy the buffers."""
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be a number from 0 to 1, got {momentum!r}.")
        # `AveragedModel` of torch would copy the predictor, and its first update would replace the teacher's weights by
        # those of the student.
        averages, parameters = dict(self.net.named_parameters()), dict(student.named_parameters())
        latest = [parameters[name].to(average.dtype) for name, average in averages.items()]
        get_ema_multi_avg_fn(momentum)(list(averages.values()), latest, 1)
        buffers = dict(student.named_buffers())
        for name, buffer in self.net.named_buffers():
            buffer.copy_(buffers[name])  # not averaged: running statistics already are averages

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)

    @torch.no_grad()
    def forward(self, views: Sequence[Tensor]) -> Tensor:
        embeddings: Tensor = self.net(views)
        return embeddings

    @torch.no_grad()
    def embed_view(self, view: Tensor, l: int) -> Tensor:
        return self.net.embed_view(view, l)
