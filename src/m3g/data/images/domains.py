"""Images of the same classes in several domains (DomainNet, PACS), which are the views."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from m3g.data.images.aligned import AlignedDomains
from m3g.data.images.folders import ImageData, ImageRows, Where, list_images
from m3g.data.sampling import aligned_points, shared_classes
from m3g.data.splits import SPLITS, Split, split_rows
from m3g.data.storage.damaged import damaged_images

log = logging.getLogger(__name__)


class Domains(AlignedDomains, ImageData):
    """Images of the same classes in several domains; the views are the seen domains, those that are not held out.

    An object, called *point* in the options, is a tuple of images of one class, one per seen domain. A batch has n
    different random classes and, for each, one random image per seen domain (`ClassAlignedSampler`). In validation and
    test, the j-th object of a class consists of its j-th image in every domain. `domain_loader` returns the images of
    one domain, seen or held out.

    Two layouts are supported. Images in `root/<domain>/<class>/*.jpg` are split by the seed within every class.
    DomainNet's list files `root/<domain>_train.txt` and `root/<domain>_test.txt` have lines of `path label` with paths
    relative to root (`clipart/aircraft_carrier/clipart_001_000001.jpg 0`). The validation split is drawn from the
    training lists.

    Truncated and invalid images are skipped, as in `ImageFolders`. Classes missing from a seen domain form no objects.

    Args:
        root: the folder.
        domains: the domains to use; by default all in the folder.
        held_out: domains used only for testing.
        stack: augmentation of every view.
        size: side of the views in pixels.
        batch_size: classes per step and process.
        points_per_epoch: objects per epoch, rounded down to whole batches; by default, the average number of training
            images per seen domain.
        val, test: fractions of the images in these splits, stratified by class; with list files only `val` is used.
        split_seed: seed of the split.
        seed: seed of batches and augmentations.
        augment_on: `worker` augments in the process that reads the images; `device` augments on the accelerator after
            the transfer, which requires a Lightning trainer.
        num_workers: processes that read images.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        domains: Sequence[str] | None = None,
        held_out: str | Sequence[str] = (),
        stack: str = "simclr",
        size: int = 224,
        batch_size: int = 16,
        points_per_epoch: int | None = None,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        augment_on: Where = "worker",
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        known = _domain_names(Path(root))
        names = known if domains is None else domains
        self._choose_views(names, held_out, known)
        self._setup_images([stack] * self.k, size, augment_on)
        self.files = []
        names = list(dict.fromkeys([*names, *self.held_out]))
        self.labels, self.members = self._read(Path(root), names, val=val, test=test, split_seed=split_seed)
        self._set_points_per_epoch(points_per_epoch)
        for split in SPLITS:
            self.datasets[split] = self._training_rows(self._points(split))

    def domain_rows(self, domain: str, split: Split) -> ImageRows:
        return self.plain_images(self._images_of(domain, split).tolist())

    def _read(
        self, root: Path, names: Sequence[str], *, val: float, test: float, split_seed: int
    ) -> tuple[Tensor, dict[tuple[str, Split], np.ndarray]]:
        """Append to `files`; return the class of each file, and the file indices of every domain and split."""
        domains = {name: _read_domain(root, name) for name in names}
        classes = sorted({label for images in domains.values() for _, label, _ in images})
        self.class_names = [str(label) for label in classes]
        code = {label: c for c, label in enumerate(classes)}
        labels: list[int] = []
        members: dict[tuple[str, Split], np.ndarray] = {}
        for name, images in domains.items():
            index = np.arange(len(images)) + len(self.files)
            codes = np.array([code[label] for _, label, _ in images])
            self.files += [path for path, _, _ in images]
            labels += codes.tolist()
            in_test_list = np.array([split == "test" for _, _, split in images])
            others = np.flatnonzero(~in_test_list)
            fraction = 0.0 if in_test_list.any() else test
            rows = split_rows(len(others), val=val, test=fraction, seed=split_seed, labels=codes[others])
            for split in SPLITS:
                members[name, split] = index[others[rows[split]]]
            if in_test_list.any():
                members[name, "test"] = index[in_test_list]
        return torch.tensor(labels), members

    def _points(self, split: Split) -> list[tuple[int, ...]]:
        """Return the file indices of every object of a split, and warn about classes that domains do not share."""
        domains = self._by_class(split)
        shared = shared_classes(domains)
        missing = len({c for domain in domains for c in domain}) - len(shared)
        if missing:
            log.warning("%d classes are missing from at least one domain in split %s and are skipped.", missing, split)
        return aligned_points(domains)


def _domain_names(root: Path) -> list[str]:
    if not root.is_dir():
        raise ValueError(f"root must be a folder that exists, got {str(root)!r}: check the path.")
    # Either list defines a domain; if the other is missing, reading the domain raises an error.
    lists = sorted({path.name.rpartition("_")[0] for end in ("train", "test") for path in root.glob(f"*_{end}.txt")})
    return lists or sorted(path.name for path in root.iterdir() if path.is_dir() and path.name[0] != ".")


def _read_domain(root: Path, name: str) -> list[tuple[Path, str | int, str | None]]:
    """Return the path, class and split of every image; the split is None without list files."""
    if not any((root / f"{name}_{split}.txt").is_file() for split in ("train", "test")):
        folder = root / name
        files = list_images(folder)
        if not files or any(len(path.relative_to(folder).parts) == 1 for path in files):
            raise ValueError(f"root must have folders <domain>/<class>/*.jpg, got something else in {str(folder)!r}.")
        return [(path, path.relative_to(folder).parts[0], None) for path in files]
    images: list[tuple[Path, str | int, str | None]] = []
    for split in ("train", "test"):
        file = root / f"{name}_{split}.txt"
        if not file.is_file():
            other = "test" if split == "train" else "train"
            raise ValueError(f"root must have {file.name} next to {name}_{other}.txt, got none.")
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            path, _, label = line.rpartition(" ")
            if not line.strip():
                continue
            if not path or not label.isdigit():
                raise ValueError(f"{file.name} must have lines 'path label', got {line!r} in line {number}.")
            # An untrusted list must not refer to files outside the data folder.
            if not (root / path).resolve().is_relative_to(root.resolve()):
                raise ValueError(f"{file.name} must have paths below root, got {path!r} in line {number}.")
            images.append((root / path, int(label), split))
    missing = next((path for path, _, _ in images if not path.is_file()), None)
    if missing is not None:
        raise ValueError(f"{name}_train.txt and {name}_test.txt must list files that exist, got {str(missing)!r}.")
    damaged = damaged_images([path for path, _, _ in images])
    return [image for image in images if image[0] not in damaged]
