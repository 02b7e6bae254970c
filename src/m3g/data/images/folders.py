"""Images in folders: the k views of an image are k augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypedDict, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from m3g import _checks
from m3g.data.base import ViewsData
from m3g.data.batch import Batch
from m3g.data.images.augment import IMAGENET_STACKS, Augmentation, plain
from m3g.data.images.reading import SUFFIXES, load_crops, load_image
from m3g.data.sampling import Draw
from m3g.data.splits import SPLITS, Split, split_rows
from m3g.data.storage.damaged import damaged_images

Where = Literal["worker", "device"]
EvaluationViews = Literal["augmented", "plain"]


def list_images(folder: Path) -> list[Path]:
    """Return all readable images below a folder, sorted, so that the order is the same on every machine."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    damaged = damaged_images(files)
    return [path for path in files if path not in damaged]


@final
class Images(TypedDict):
    """Batch before the transform: k uint8 tensors (n, 3, h, w), and the seed of their augmentation."""

    images: list[Tensor]
    seed: tuple[int, ...] | None
    mask: Tensor | None
    label: Tensor | None
    index: Tensor


class ViewTransform:
    """Convert k tensors of images to k views: augment random crops, or resize and centre-crop whole images."""

    def __init__(self, stacks: Sequence[str], size: int):
        self.augmentations = [Augmentation(stack, size=size, scale=None) for stack in stacks]
        self.size = size

    def __call__(self, raw: Images) -> Batch:
        images, seed = raw["images"], raw["seed"]
        if seed is None:
            first = plain(images[0], size=self.size)
            views = [first if part is images[0] else plain(part, size=self.size) for part in images]
        else:
            views = [
                augment(part, seed=(*seed, l)) for l, (augment, part) in enumerate(zip(self.augmentations, images))
            ]
        return {"views": views, "mask": raw["mask"], "label": raw["label"], "index": raw["index"]}


class ImageRows(Dataset[Batch]):
    """Dataset of rows with k image files each (or one file k times), read in whole batches.

    Args:
        files: all files.
        points: the k file indices of each row; the `row` of a `Draw` may be k file indices instead of a row number.
        labels: class of each file, or None.
        size: side of the views in pixels. Views with augmentation are read as random crops of this size; views without
            augmentation as squares of 256/224 times this size, of which the transform crops the centre.
        transform: applied by the dataset, in the worker process; if None, the data module applies it.
        seed: seed of the augmentations; None for views without augmentation. The first row of a batch is part of the
            seed, because kornia augments a batch with one random stream. Separate augmentation of each image would take
            1.7 to 6 times as long.
    """

    def __init__(
        self,
        files: Sequence[Path],
        points: Sequence[tuple[int, ...]],
        labels: Tensor | None,
        *,
        size: int,
        transform: ViewTransform | None,
        seed: int | None,
    ):
        self.files, self.points, self.labels = files, points, labels
        self.size, self.transform, self.seed = size, transform, seed

    def __len__(self) -> int:
        return len(self.points)

    def __getitems__(self, rows: Sequence[int | Draw]) -> Batch | Images:
        first, seed = rows[0], None
        if isinstance(first, Draw):
            seed = (self.seed or 0, 1 + first.epoch, first.position)
        elif self.seed is not None:
            seed = (self.seed, 0, first)
        points = [self._point(row) for row in rows]
        index = torch.tensor([point[0] for point in points])
        raw: Images = {
            "images": self._whole(points) if seed is None else self._crops(points, seed),
            "seed": seed,
            "mask": None,
            "label": None if self.labels is None else self.labels[index],
            "index": index,
        }
        return raw if self.transform is None else self.transform(raw)

    def _point(self, row: int | Draw) -> tuple[int, ...]:
        if isinstance(row, Draw):
            return row.row if isinstance(row.row, tuple) else self.points[row.row]
        return self.points[row]

    def _whole(self, points: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Return the images of the rows for each view, resized to squares; equal lists of files are read once."""
        columns, side = list(zip(*points)), round(self.size * 256 / 224)
        read = {column: torch.stack([load_image(self.files[i], side) for i in column]) for column in set(columns)}
        return [read[column] for column in columns]

    def _crops(self, points: Sequence[tuple[int, ...]], seed: tuple[int, ...]) -> list[Tensor]:
        """Return a random crop per row and view; each file of a row is read once."""
        views: list[list[Tensor]] = [[] for _ in points[0]]
        for i, point in enumerate(points):
            for file in dict.fromkeys(point):
                file_views = [l for l, other in enumerate(point) if other == file]
                randoms = [np.random.default_rng([*seed, i, l]) for l in file_views]
                for l, crop in zip(file_views, load_crops(self.files[file], self.size, randoms)):
                    views[l].append(crop)
        return [torch.stack(part) for part in views]


class ImageData(ViewsData):
    """Base class of data modules of image files: image size, augmentation stacks, and where augmentation runs."""

    shared_encoder: ClassVar[bool] = True

    files: list[Path]
    labels: Tensor | None
    evaluation_seed: int | None = None  # None: views without augmentation

    def _setup_images(self, stacks: Sequence[str], size: int, augment_on: str) -> None:
        self.size = _checks.positive_int("size", size)
        self.transform = ViewTransform(stacks, size)
        self.in_worker = _checks.one_of("augment_on", augment_on, ("worker", "device")) == "worker"
        self.view_shapes = [(3, size, size)] * len(stacks)

    def _training_rows(self, points: Sequence[tuple[int, ...]]) -> ImageRows:
        transform = self.transform if self.in_worker else None
        return ImageRows(self.files, points, self.labels, size=self.size, transform=transform, seed=self.seed)

    def _evaluation_rows(self, points: Sequence[tuple[int, ...]]) -> ImageRows:
        # Always transformed in the worker, because evaluation may run without a trainer.
        return ImageRows(
            self.files, points, self.labels,
            size=self.size, transform=self.transform, seed=self.evaluation_seed,
        )  # fmt: skip

    def files_of(self, split: Split) -> list[int]:
        """Return the indices in `files` of the images in a split."""
        points = self.datasets[split].points  # type: ignore[attr-defined]
        return list(dict.fromkeys(i for point in points for i in point))

    def plain_images(self, files: Sequence[int]) -> ImageRows:
        """Return single-view rows of images in `files` without augmentation."""
        points = [(int(i),) for i in files]
        return ImageRows(self.files, points, self.labels, size=self.size, transform=self.transform, seed=None)

    def evaluation_dataset(self, split: Split) -> Dataset[Batch]:
        """Return a split, possibly the training split, with the views used in evaluation."""
        return self._evaluation_rows(super().evaluation_dataset(split).points)  # type: ignore[attr-defined]

    def on_after_batch_transfer(self, batch: Batch | Images, dataloader_idx: int) -> Batch:
        """Augment a batch on its device unless the worker has augmented it; called by Lightning."""
        return self.transform(batch) if "images" in batch else batch


class ImageFolders(ImageData):
    """Images in folders; the views of an image are k random augmentations.

    Truncated and invalid images are skipped, counted and named in a warning. If more than 1 % of the images are
    damaged, an error is raised.

    Layouts: `root/train/<class>/*.jpg` with `root/val` and `root/test` (if only one of these exists, it is used for
    both); `root/<class>/*.jpg`, split by `split_seed`; or `root/*.jpg` without classes.

    The augmentations of a batch depend only on `seed`, the epoch and the position of its first image in the order of
    the epoch, so a resumed run uses the same augmented images. Several processes share the order; each process augments
    only its own images.

    Args:
        root: the folder.
        k: number of views, with the paper's stacks byol-global1, byol-global2, simclr, byol-global1 (k <= 4).
        stacks: one stack per view, instead of k: byol-global1, byol-global2 or simclr.
        size: side of the views in pixels.
        batch_size: images per step and process.
        val, test: fractions of the images held out, stratified by class; not used with a folder `train`.
        split_seed: seed of the split.
        seed: seed of the training order and the augmentations.
        evaluation_views: `augmented` uses k augmentations of each image in evaluation, so that retrieval between views
            is not trivial; `plain` uses the resized, cropped image k times (the paper's probe). Batches are augmented
            as a whole, seeded by `seed` and the position of their first image in the split. The augmentations
            therefore repeat in every evaluation with the same `batch_size` and the same rows, but differ if either
            changes, as with the argument `most` of `ViewsData.arrays`.
        augment_on: `worker` augments in the process that reads the images; `device` augments on the accelerator after
            the transfer, which requires a Lightning trainer.
        num_workers: processes that read images.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        k: int = 2,
        stacks: Sequence[str] | None = None,
        size: int = 224,
        batch_size: int = 64,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        evaluation_views: EvaluationViews = "augmented",
        augment_on: Where = "worker",
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        if stacks is None:
            if not 2 <= k <= len(IMAGENET_STACKS):
                raise ValueError(f"k must be 2, 3 or 4 (more with stacks=[...]), got {k!r}.")
            stacks = IMAGENET_STACKS[:k]
        elif len(stacks) < 2:
            raise ValueError(f"stacks must be k >= 2 names, one per view, got {len(stacks)}.")
        _checks.one_of("evaluation_views", evaluation_views, ("augmented", "plain"))
        self._setup_images(stacks, size, augment_on)
        self.evaluation_seed = seed if evaluation_views == "augmented" else None
        self.view_names = [f"{l}: {stack}" for l, stack in enumerate(stacks)]
        self.files, classes, rows = find_images(Path(root), val=val, test=test, split_seed=split_seed)
        self.class_names = sorted(set(classes)) if classes is not None else None
        self.labels = None
        if classes is not None and self.class_names is not None:
            code = {name: c for c, name in enumerate(self.class_names)}
            self.labels = torch.tensor([code[name] for name in classes])
        for split in SPLITS:
            self.datasets[split] = self._training_rows([(int(i),) * len(stacks) for i in rows[split]])


def find_images(
    root: Path, *, val: float, test: float, split_seed: int
) -> tuple[list[Path], list[str] | None, dict[Split, np.ndarray]]:
    """Return the files below root, their classes (None without class folders), and the rows of every split."""
    if not root.is_dir():
        raise ValueError(f"root must be a folder that exists, got {str(root)!r}: check the path.")
    folder = root / "train" if (root / "train").is_dir() else root
    files, classes = _with_classes(folder)
    if classes is not None and len(set(classes)) < 2:
        raise ValueError(
            f"root must have at least 2 class folders, got only {classes[0]!r} in {str(folder)!r}: for images without "
            "classes, pass the folder that contains them."
        )
    if folder == root:
        kinds = None if classes is None else np.unique(classes, return_inverse=True)[1]
        return files, classes, split_rows(len(files), val=val, test=test, seed=split_seed, labels=kinds)
    if not (root / "val").is_dir() and not (root / "test").is_dir():
        raise ValueError(f"root must have a folder val or test next to train, got neither in {str(root)!r}.")
    rows: dict[Split, np.ndarray] = {"train": np.arange(len(files))}
    for split in ("val", "test"):
        if (root / split).is_dir():
            more, more_classes = _with_classes(root / split)
            if (classes is None) != (more_classes is None):
                raise ValueError(
                    "root must have class folders in all of train, val and test or in none, "
                    f"but {split!r} and 'train' differ."
                )
            unknown = sorted(set(more_classes or ()) - set(classes or ()))
            if unknown:
                raise ValueError(
                    f"root must have only classes of train in {split!r}, got {unknown[0]!r}, which is not in train."
                )
            rows[split] = np.arange(len(files), len(files) + len(more))
            files = files + more
            classes = None if classes is None else classes + (more_classes or [])
    rows.setdefault("val", rows.get("test", np.arange(0)))
    rows.setdefault("test", rows["val"])
    return files, classes, rows


def _with_classes(folder: Path) -> tuple[list[Path], list[str] | None]:
    """Return the images below a folder, and their classes if they are in class folders, otherwise None."""
    files = list_images(folder)
    if not files:
        raise ValueError(f"root must contain images ({', '.join(SUFFIXES)}), got none below {str(folder)!r}.")
    inner = [path.relative_to(folder).parts for path in files]
    if all(len(parts) == 1 for parts in inner):
        return files, None
    if any(len(parts) == 1 for parts in inner):
        raise ValueError(f"root must have all images in class folders or none, got both in {str(folder)!r}.")
    return files, [parts[0] for parts in inner]
