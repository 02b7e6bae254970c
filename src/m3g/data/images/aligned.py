"""Base class of data modules with images of the same classes in several domains, which are the views."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from m3g import _checks
from m3g.data.base import ViewsData
from m3g.data.batch import Batch
from m3g.data.sampling import ClassAlignedSampler, by_class, shared_classes
from m3g.data.splits import SPLITS, Split


class AlignedDomains(ViewsData):
    """Base class of data modules whose views are the seen domains, those that are not held out for testing.

    An object, called *point* in the options, is a tuple of images of one class, one per seen domain. A batch has n
    objects of different random classes.

    Attributes:
        held_out: domains used only for testing.
        labels: class of each image, over all domains.
        members: indices of the images of every domain and split.
    """

    held_out: list[str]
    labels: Tensor | None
    members: dict[tuple[str, Split], np.ndarray]

    def _choose_views(self, names: Sequence[str], held_out: str | Sequence[str], known: Sequence[str]) -> None:
        """Set `held_out`, and use the other domains in `names` as views; `known` are the domains in the data."""
        self.held_out = [held_out] if isinstance(held_out, str) else list(held_out)
        for option, given in (("domains", names), ("held_out", self.held_out)):
            if isinstance(given, str) or not set(given) <= set(known):
                got = given if isinstance(given, str) else ", ".join(given)
                raise ValueError(f"{option} must be some of {', '.join(known)}, got {got}.")
            if len(set(given)) < len(given):
                raise ValueError(f"{option} must be distinct, got {', '.join(given)}.")
        self.view_names = [name for name in names if name not in self.held_out]
        if self.k < 2:
            raise ValueError(f"domains must include at least 2 that are not held out, got {self.k}: {self.view_names}.")

    def _set_points_per_epoch(self, points_per_epoch: int | None) -> None:
        """Set the points per epoch, by default the average number of training images per seen domain."""
        self._train_members = self._by_class("train")
        if not shared_classes(self._train_members):
            raise ValueError("domains must share at least one class, got none.")
        if points_per_epoch is None:
            points_per_epoch = sum(len(self.members[name, "train"]) for name in self.view_names) // self.k
        self.points_per_epoch = _checks.positive_int("points_per_epoch", points_per_epoch)

    def _by_class(self, split: Split) -> list[dict[int, list[int]]]:
        """Return a mapping from class to image indices for each seen domain."""
        assert self.labels is not None
        return [by_class(self.members[name, split], self.labels) for name in self.view_names]

    def sampler(self) -> ClassAlignedSampler:
        return ClassAlignedSampler(
            self._train_members, points=self.points_per_epoch, batch_size=self.batch_size, seed=self.seed
        )

    @abstractmethod
    def domain_rows(self, domain: str, split: Split) -> Dataset[Batch]:
        """Return the images and classes of one domain as a single view, without augmentation."""

    def _images_of(self, domain: str, split: Split) -> np.ndarray:
        _checks.one_of("domain", domain, [*self.view_names, *self.held_out])
        _checks.one_of("split", split, SPLITS)
        return self.members[domain, split]

    def domain_loader(self, domain: str, split: Split) -> DataLoader[Batch]:
        """Return single-view batches of one domain in a fixed order, for probes on seen and held-out domains."""
        return self.batches(self.domain_rows(domain, split))

    def held_out_batches(self) -> tuple[Iterable[Batch], Iterable[Batch]] | None:
        if not self.held_out:
            return None
        seen = (self.domain_loader(name, "train") for name in self.view_names)
        unseen = (self.domain_loader(name, "test") for name in self.held_out)
        return itertools.chain.from_iterable(seen), itertools.chain.from_iterable(unseen)
