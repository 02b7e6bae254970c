"""Network of k encoders and their heads: k views in, embeddings (k, n, d) out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MultiViewNet(nn.Module):
    """Network of k views: `embedding_l = predictor(projector_l(encoder_l(view_l)))`.

    Args:
        encoders: one module shared by all views, or a sequence of k modules, which map a view to (n, width).
        projectors: one module shared by all views, or a sequence of k modules, which map (n, width) to (n, d).
        predictor: optional module shared by all views, mapping (..., d) to (..., d).

    Example:
        >>> import torch
        >>> from m3g.nets import MLP, MultiViewNet, Projector
        >>> net = MultiViewNet([MLP(5), MLP(9)], Projector(256))
        >>> net([torch.randn(4, 5), torch.randn(4, 9)]).shape
        torch.Size([2, 4, 64])
    """

    def __init__(
        self,
        encoders: nn.Module | Sequence[nn.Module],
        projectors: nn.Module | Sequence[nn.Module],
        predictor: nn.Module | None = None,
    ):
        super().__init__()
        self.encoders = _as_list(encoders)
        self.projectors = _as_list(projectors)
        self.predictor = predictor
        if len({len(self.encoders), len(self.projectors)} - {1}) > 1:
            raise ValueError(
                "projectors must be one module or one per encoder, "
                f"got {len(self.projectors)} for {len(self.encoders)} encoders."
            )

    def features(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs of the encoders before the heads: k tensors (n, width) of possibly different widths."""
        return [encoder(view) for encoder, view in zip(self._per_view(self.encoders, len(views)), views)]

    def project(self, features: Sequence[Tensor]) -> Tensor:
        """Map features to embeddings (k, n, d) with the projectors and, if there is one, the predictor."""
        projectors = self._per_view(self.projectors, len(features))
        embeddings = torch.stack([projector(part) for projector, part in zip(projectors, features)])
        return self._predict(embeddings)

    def forward(self, views: Sequence[Tensor]) -> Tensor:
        return self.project(self.features(views))

    def train(self, mode: bool = True) -> MultiViewNet:
        """Set the training mode; frozen encoders stay in evaluation mode, without dropout."""
        super().train(mode)
        for encoder in self.encoders:
            if getattr(encoder, "frozen", False):
                encoder.eval()
        return self

    def embed_view(self, view: Tensor, l: int) -> Tensor:
        """Return the embedding (n, d) of one view."""
        features = self.encoders[l % len(self.encoders)](view)
        return self._predict(self.projectors[l % len(self.projectors)](features))

    def _predict(self, embedding: Tensor) -> Tensor:
        if self.predictor is None:
            return embedding
        predicted: Tensor = self.predictor(embedding)
        return predicted

    @staticmethod
    def _per_view(modules: nn.ModuleList, k: int) -> list[nn.Module]:
        if len(modules) not in (1, k):
            raise ValueError(f"views must be {len(modules)} tensors, one per encoder or projector, got {k}.")
        return list(modules) * (k if len(modules) == 1 else 1)


def _as_list(modules: nn.Module | Sequence[nn.Module]) -> nn.ModuleList:
    if isinstance(modules, nn.Module) and not isinstance(modules, nn.ModuleList):
        modules = [modules]
    if len(modules) == 0:
        raise ValueError("encoders and projectors must have at least one module, got none.")
    return nn.ModuleList(modules)
