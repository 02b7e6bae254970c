"""Images at laptop size: `domain/class/image` trees, `train/class` and `val/class` folders, and fonts."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from m3g import _checks
from m3g.data.images.reading import SUFFIXES
from m3g.experiments.sources.files import Arrays, MissingData, check_paths, find_file, find_folder, once

if TYPE_CHECKING:
    from PIL.Image import Image

# The ten classes of Tiny-ImageNet that the stored results use.
TEN_CLASSES = (
    "n01443537", "n02056570", "n02099601", "n02279972", "n02504458",
    "n04146614", "n04285008", "n04311004", "n04398044", "n07753592",
)  # fmt: skip
STYLES = ("display", "handwriting", "monospace", "sans_serif", "serif")  # the categories of Google Fonts
MAX_CLASSES, MAX_IMAGES = 10, 550  # classes, and images per class, that `prepare_folders` reads


@dataclass(frozen=True)
class Tree:
    """A `domain/class/image` tree, and the part of it that a laptop run reads.

    Attributes:
        domains: the names of the domains.
        archive: a `.zip` file that may contain the tree instead of folders.
        classes: number of classes to read; None for all.
        images: number of images to read per domain and class; None for all.
    """

    domains: tuple[str, ...]
    archive: str = ""
    classes: int | None = None
    images: int | None = None


TREES = {
    "pacs": Tree(("art_painting", "cartoon", "photo", "sketch"), "pacs_64jpg.zip"),
    "office-home": Tree(("Art", "Clipart", "Product", "Real World"), classes=40, images=40),
    "domainnet-small": Tree(("clipart", "infograph", "painting", "quickdraw", "real", "sketch"), classes=40, images=40),
}


def tree_images(source: Path | None, tree: Tree) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield domain, class and pixels of every image of a tree in a fixed order, in greyscale at 64 x 64 pixels."""
    for domain, kind, file in _tree_files(source, tree):
        with _opened(file) as image:
            yield domain, kind, np.asarray(image.convert("L").resize((64, 64)), dtype=np.float32)


def _tree_files(source: Path | None, tree: Tree) -> Iterator[tuple[str, str, Path | IO[bytes]]]:
    if tree.archive and source is not None and (source / tree.archive).is_file():
        with zipfile.ZipFile(source / tree.archive) as archive:
            for name in sorted(archive.namelist()):
                parts = Path(name).parts
                if len(parts) == 4 and not name.endswith("/"):
                    with archive.open(name) as packed:
                        yield parts[1], parts[2], packed
        return
    folders = find_folder(source, tree.domains, hint=f"the folders {', '.join(tree.domains)} with CLASS/IMAGE in each")
    kinds = sorted(set.intersection(*({path.name for path in folder.iterdir()} for folder in folders.values())))
    for domain, folder in folders.items():
        for kind in kinds[: tree.classes]:
            for file in _image_files(folder / kind)[: tree.images]:
                yield domain, kind, file


def _image_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _opened(file: Path | IO[bytes]) -> Image:
    try:
        image: Image = _checks.extra("PIL.Image", "train").open(file)
        return image
    except OSError as error:
        raise ValueError(f"images must be readable files, got {str(file)!r} ({error}): replace it.") from error


def prepare_tree(name: str, source: Path | None, target: Path, *, grid: int = 4) -> None:
    """Write the edge histogram of every image (`grid` x `grid` cells, 8 directions) and the classes.

    Histograms are normalised, so that faint drawings have the same weight as strong ones.
    """

    def make() -> Arrays:
        images: dict[str, list[np.ndarray]] = {}
        labels: dict[str, list[str]] = {}
        for domain, kind, grey in tree_images(source, TREES[name]):
            edges = edge_directions(grey, grid=grid)
            edges = 255 * grid * edges / max(float(np.linalg.norm(edges)), 1e-6)
            images.setdefault(domain, []).append(edges.clip(0, 255).astype(np.uint8).reshape(grid, grid, -1))
            labels.setdefault(domain, []).append(kind)
        stacked = {domain: np.stack(part) for domain, part in images.items()}
        return {**stacked, **{f"{domain}_label": np.array(part) for domain, part in labels.items()}}

    once(target, f"{name}_edges.npz", make)


def edge_directions(image: np.ndarray, *, grid: int = 4, directions: int = 8) -> np.ndarray:
    """Return the square root of the total gradient in each direction and cell of a square image, as one vector.

    The image is divided into `grid` x `grid` cells.

    Example:
        >>> edge_directions(np.eye(64)).shape
        (128,)
    """
    down, right = np.gradient(image)
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    bins = np.minimum((angle / np.pi * directions).astype(int), directions - 1)
    side = np.arange(image.shape[0]) * grid // image.shape[0]
    index = (side[:, None] * grid + side[None, :]) * directions + bins
    counts = np.bincount(index.ravel(), weights=strength.ravel(), minlength=grid**2 * directions)
    return np.sqrt(counts).astype(np.float32)


def read_fonts(source: Path | None) -> Arrays:
    """Read `fonts_5styles_28.npz`, or `fonts.npz` of `m3g prepare fonts`.

    The arrays are the images (faces, characters, 28, 28) of every style, and `chars`.
    """
    file = find_file(source, "fonts_5styles_28.npz", "fonts.npz", hint=" (made by m3g prepare fonts)")
    with np.load(file, allow_pickle=False) as stored:
        missing = [name for name in (*STYLES, "chars") if name not in stored.files]
        if missing:
            names = ", ".join((*STYLES, "chars"))
            raise MissingData(f"{file} must have the arrays {names}, but lacks {', '.join(missing)}.")
        return {name: stored[name] for name in (*STYLES, "chars")}


def prepare_fonts(source: Path | None, target: Path) -> None:
    """Write the images of all characters and their labels, by style."""

    def make() -> Arrays:
        stored, arrays = read_fonts(source), {}
        for style in STYLES:
            faces = stored[style]
            arrays[style] = faces.reshape(-1, *faces.shape[2:])
            arrays[f"{style}_label"] = np.tile(stored["chars"], len(faces))
        return arrays

    once(target, "fonts.npz", make)


def prepare_tinyimagenet(source: Path | None, target: Path, *, side: int = 32) -> None:
    """Write ten classes of Tiny-ImageNet, train and val together, so that each seed can hold out many images."""

    def make() -> Arrays:
        images, labels = [], []
        for kind, file in _tiny_files(source):
            with _opened(file) as image:
                images.append(np.asarray(image.convert("RGB").resize((side, side))))
            labels.append(kind)
        return {"images": np.stack(images), "label": np.array(labels)}

    once(target, "tinyimagenet.npz", make)


def _tiny_files(source: Path | None) -> Iterator[tuple[str, Path | IO[bytes]]]:
    """Yield class and file, in the same order for the public folder and for the archive of ten classes."""
    packed = None if source is None else source / "tinyimagenet10_jpg.zip"
    if packed is not None and packed.is_file():
        with zipfile.ZipFile(packed) as archive:
            for name in sorted(archive.namelist()):
                parts = Path(name).parts
                if parts[0] in ("train", "val") and len(parts) == 3 and not name.endswith("/"):
                    with archive.open(name) as stream:
                        yield parts[1], stream
        return
    hint = "tiny-imagenet-200 with train/ and val/val_annotations.txt"
    folders = find_folder(source, ("train", "val"), hint=hint)
    notes = folders["val"] / "val_annotations.txt"
    if not notes.is_file():
        raise MissingData(f"--data must be a folder that contains {hint}, got {source}.")
    for kind in TEN_CLASSES:
        for file in _image_files(folders["train"] / kind):
            yield kind, file
    rows = [line.split("\t")[:2] for line in notes.read_text(encoding="utf-8").splitlines() if line]
    for kind in TEN_CLASSES:
        for name in sorted(name for name, label in rows if label == kind):
            yield kind, folders["val"] / "images" / name


def prepare_folders(source: Path | None, target: Path, *, side: int = 32) -> None:
    """Write the first ten classes of `train/class` and `val/class` folders, at most 550 images each, as squares."""

    def make() -> Arrays:
        folders = find_folder(source, ("train", "val"), hint="train/CLASS/IMAGE and val/CLASS/IMAGE")
        kinds = sorted(path.name for path in folders["train"].iterdir() if path.is_dir())
        if len(kinds) < 2 or not (folders["val"] / kinds[0]).is_dir():
            raise MissingData(f"--data must contain train/CLASS/IMAGE and val/CLASS/IMAGE, got {source}.")
        fit = _checks.extra("PIL.ImageOps", "train").fit
        images, labels = [], []
        for kind in kinds[:MAX_CLASSES]:
            files = [file for part in ("val", "train") for file in _image_files(folders[part] / kind)]
            for file in files[:MAX_IMAGES]:
                with _opened(file) as image:
                    images.append(np.asarray(fit(image.convert("RGB"), (side, side))))
                labels.append(kind)
        return {"images": np.stack(images), "label": np.array(labels)}

    once(target, "folders.npz", make)


def check_paper_folders(source: Path | None, target: Path) -> None:
    """Check that the folders `train` and `val` of ImageNet-1k exist; they are read in place."""
    check_paths(source, "train", "val")


def check_paper_domains(source: Path | None, target: Path) -> None:
    """Check that the six folders or list files of DomainNet exist; they are read in place."""
    lists = source is not None and any(source.glob("*_train.txt"))
    check_paths(source, *(f"{name}_train.txt" if lists else name for name in TREES["domainnet-small"].domains))
