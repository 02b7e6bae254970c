"""Data sets of `m3g reproduce views`. To add a set, write one more reader here.

A reader receives the user's `--data` folder and returns arrays by name: the registered views, `label` if the set has
labels, and `group` if rows of one group must be in one split. It is called once, and its result is stored in
`OUT/data/NAME.npz`. Each file in the folder `views` of the data folder is one more set (`register_files`).
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np

from m3g.data.storage.matlab import load_matlab
from m3g.experiments.engine.spec import Prepare
from m3g.experiments.sources.files import Arrays, MissingData, find_file, once
from m3g.experiments.sources.images import TREES, edge_directions, read_fonts, tree_images
from m3g.experiments.sources.multiview import SUFFIXES, read_views
from m3g.experiments.sources.signals import SENSORS, read_sleep

Reader = Callable[[Path], Arrays]
MAX_ROWS = 2000
NOT_VIEWS = ("label", "group")


@dataclass(frozen=True)
class ViewSet:
    """A data set.

    Attributes:
        views: the names of its views.
        read: its reader.
        labels, groups: whether it has labels, and groups.
        by_class: whether rows combine images of one class; any row of the class is then correct in retrieval.
        part: whether it is used only in the curve against k, not in means over sets.
        gaps: whether it has missing entries. If so, no further entries are removed in training, and it is not used in
            curves against missing entries.
        shipped: whether it requires no `--data`.
    """

    views: tuple[str, ...]
    read: Reader
    labels: bool = True
    groups: bool = False
    by_class: bool = False
    part: bool = False
    gaps: bool = False
    shipped: bool = False


SETS: dict[str, ViewSet] = {}


def data_set(name: str, views: Sequence[str], **facts: bool) -> Callable[[Reader], Reader]:
    """Register a reader under a name; `facts` are the other attributes of `ViewSet`."""

    def register(read: Reader) -> Reader:
        SETS[name] = ViewSet(tuple(views), read, **facts)
        return read

    return register


def sets(scale: str) -> Mapping[str, Prepare]:
    """Return, for every set, the function that creates `target/NAME.npz`."""
    return {name: partial(prepare, name) for name in SETS}


def prepare(name: str, source: Path | None, target: Path) -> None:
    """Write `target/NAME.npz` unless it exists."""

    def make() -> Arrays:
        view_set = SETS[name]
        if source is None and not view_set.shipped:
            raise MissingData("--data must be the folder with its files, got no folder.")
        try:
            arrays = view_set.read(source or Path())
        except FileNotFoundError as error:
            raise MissingData(
                f"--data must be a folder that contains its files, but {error.filename} is missing."
            ) from error
        keys = [*view_set.views, *["label"] * view_set.labels, *["group"] * view_set.groups]
        rows = _random_rows(len(arrays[keys[0]]), MAX_ROWS)
        return {key: arrays[key][rows] for key in keys}

    once(target, f"{name}.npz", make)


def register_files(source: Path | None, target: Path) -> None:
    """Register the multi-view files in `source/views`, and sets that an earlier command prepared from such files."""
    for file in () if source is None else sorted((source / "views").glob("*")):
        if file.suffix.lower() in SUFFIXES and file.stem not in SETS:
            _register(file.stem, read_views(file))
    for file in sorted(target.glob("*.npz")):
        if file.stem not in SETS:
            with np.load(file, allow_pickle=False) as stored:
                _register(file.stem, {name: stored[name] for name in stored.files})


def _register(name: str, arrays: Arrays) -> None:
    views = [key for key in arrays if key not in NOT_VIEWS]
    gaps = any(bool(np.isnan(arrays[view]).any()) for view in views)
    data_set(name, views, labels="label" in arrays, groups="group" in arrays, gaps=gaps, shipped=True)(
        lambda source: arrays
    )


def _random_rows(n: int, max_rows: int) -> np.ndarray:
    """Return at most `max_rows` of n rows, drawn with a fixed seed."""
    return np.sort(np.random.default_rng(0).permutation(n)[:max_rows])


def _matlab(source: Path, *names: str) -> Arrays:
    return load_matlab(find_file(source, *names))


DIGITS = ("fourier", "profile", "karhunen", "pixels", "zernike", "morphology")


@data_set("digits", DIGITS, shipped=True)
def digits(source: Path) -> Arrays:
    """UCI Multiple Features, part of the package: handwritten digits, k = 6."""
    with (
        resources.as_file(resources.files("m3g.data") / "files" / "mfeat.npz") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        return {**{name: stored[name].astype(np.float32) for name in DIGITS}, "label": stored["digit"]}


data_set("digits-2", DIGITS[:2], shipped=True)(digits)


@data_set("scenes", ["first", "second", "third"])
def scenes(source: Path) -> Arrays:
    """Scene-15, k = 3."""
    stored = _matlab(source, "Scene_15.mat", "Scene-15.mat", "scene15.mat")
    return {**dict(zip(("first", "second", "third"), stored["X"].ravel())), "label": stored["Y"].ravel()}


@data_set("leaves", ["shape", "texture", "margin"])
def leaves(source: Path) -> Arrays:
    """100Leaves, k = 3."""
    stored = _matlab(source, "100Leaves.mat", "100leaves.mat")
    views = dict(zip(("shape", "texture", "margin"), (view.T for view in stored["data"].ravel())))
    return {**views, "label": stored["truth"].ravel()}


LANGUAGES = ("english", "french", "german", "italian", "spanish")


@data_set("reuters", LANGUAGES)
def reuters(source: Path) -> Arrays:
    """Reuters-1200: documents in k = 5 languages, square roots of the counts of the 500 most frequent words."""
    stored = _matlab(source, "Reuters-1200.mat", "reuters-1200.mat")
    views = {language: frequent_words(counts) for language, counts in zip(LANGUAGES, stored["X"].ravel())}
    return {**views, "label": stored["y"].ravel()}


def frequent_words(counts: np.ndarray) -> np.ndarray:
    """Return square roots of the counts (n, words) of the 500 words that occur in the most documents."""
    frequent = np.argsort(-(counts > 0).sum(0), kind="stable")[:500]
    return np.sqrt(np.maximum(counts[:, np.sort(frequent)], 0)).astype(np.float32)


def _archived(file: str, *views: str) -> Reader:
    """Return a reader of an archive that contains the views and `label`."""

    def read(source: Path) -> Arrays:
        with np.load(find_file(source, file), allow_pickle=False) as stored:
            return {name: stored[name] for name in (*views, "label")}

    return read


def _documents(*names: str) -> Reader:
    """Return a reader of word counts in a multi-view file, reduced to frequent words (`frequent_words`)."""

    def read(source: Path) -> Arrays:
        arrays = read_views(find_file(source, *names))
        return {name: part if name == "label" else frequent_words(part) for name, part in arrays.items()}

    return read


for _name, _file, _views in (
    # Protein folds, k = 12.
    ("proteins", "protein_fold_12views.npz", tuple(f"view{l:02}" for l in range(12))),
    # TCGA breast tumours, k = 3; 70 of the 220 rows lack the protein view.
    ("tumours", "tcga_breast_3omics.npz", ("mrna", "mirna", "protein")),
    # ROSMAP: brain tissue with and without Alzheimer's disease, k = 3.
    ("rosmap", "rosmap_3omics.npz", ("mrna", "methylation", "mirna")),
):
    data_set(_name, _views, gaps=_name == "tumours")(_archived(_file, *_views))
for _name, _k, _files in (
    # News stories reported by k = 3 sources.
    ("3sources", 3, ("3Sources.mat", "3sources.mat")),
    # Sports news, k = 2 segments of each article.
    ("bbcsport", 2, ("BBCSport.mat", "bbcsport.mat")),
    # Web pages of universities, k = 2: words of the page, and of the links to it.
    ("webkb", 2, ("webkb.mat", "WebKB.mat")),
):
    data_set(_name, [f"view{l}" for l in range(_k)])(_documents(*_files))


@data_set("sleep", tuple(SENSORS), groups=True)
def sleep(source: Path) -> Arrays:
    """SleepEDFx: spectral features of k = 6 sensors; a subject is in one split only."""
    arrays = read_sleep(source)
    return {**{name: arrays[name] for name in SENSORS}, "label": arrays["stage"], "group": arrays["subject"]}


@data_set("captions", ["en", "de", "fr", "cs"], labels=False)
def captions(source: Path) -> Arrays:
    """Multi30k: captions in k = 4 languages, as counts of words hashed to 500 bins; no labels."""
    return {
        language: np.stack(
            [hashed(line, 500) for line in _lines(find_file(source, f"train.{language}.gz"), 4 * MAX_ROWS)]
        )
        for language in ("en", "de", "fr", "cs")
    }


def _lines(path: Path, max_lines: int) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == max_lines:
                return
            yield line


def hashed(text: str, bins: int) -> np.ndarray:
    """Return the counts of the words of a text in hash bins, the same on every machine.

    Example:
        >>> float(hashed("A dog, a cat", 50).sum())
        4.0
    """
    words = re.findall(r"\w+", text.lower())
    return np.bincount([zlib.crc32(word.encode()) % bins for word in words], minlength=bins).astype(np.float32)


STYLES = ("serif", "sans_serif", "monospace", "handwriting", "display")


@data_set("fonts", STYLES, groups=True, by_class=True)
def fonts(source: Path) -> Arrays:
    """A character in k = 5 styles, 14 x 14 pixels; a face is in one split only."""
    stored, images = read_fonts(source), {}
    for style in STYLES:
        faces = stored[style].astype(np.float32)
        small = faces.reshape(*faces.shape[:2], 14, 2, 14, 2).mean((3, 5))
        images[style] = {name: small[:, i].reshape(len(faces), -1) for i, name in enumerate(stored["chars"])}
    return _joined_by_class(images, rows_per_class=25)


@data_set("pacs", TREES["pacs"].domains, groups=True, by_class=True)
def pacs(source: Path) -> Arrays:
    """Objects in k = 4 domains of PACS, as histograms of edge directions in 16 cells."""
    edges: dict[str, dict[str, list[np.ndarray]]] = {domain: {} for domain in TREES["pacs"].domains}
    for domain, kind, grey in tree_images(source, TREES["pacs"]):
        edges[domain].setdefault(kind, []).append(edge_directions(grey))
    images = {domain: {kind: np.stack(part) for kind, part in kinds.items()} for domain, kinds in edges.items()}
    return _joined_by_class(images, rows_per_class=280)


def _joined_by_class(images: dict[str, dict[str, np.ndarray]], *, rows_per_class: int, folds: int = 5) -> Arrays:
    """Return rows of one random image per domain, all of one class and one fold; the fold is the group."""
    random = np.random.default_rng(0)
    kinds = sorted(set.intersection(*(set(by_kind) for by_kind in images.values())))
    columns: dict[str, list[np.ndarray]] = {domain: [] for domain in images}
    labels, groups = [], []
    for kind in kinds:
        for fold in range(folds):
            number = rows_per_class // folds
            for domain, by_kind in images.items():
                fold_images = by_kind[kind][fold::folds]
                columns[domain].append(fold_images[random.integers(len(fold_images), size=number)])
            labels += [kind] * number
            groups += [f"fold{fold}"] * number
    joined = {domain: np.concatenate(parts) for domain, parts in columns.items()}
    return {**joined, "label": np.array(labels), "group": np.array(groups)}


# The digits with the first k of their views, for the curve against k; those with two and all six are also main sets.
DIGITS_BY_NUMBER = {k: f"digits-{k}" if k < len(DIGITS) else "digits" for k in range(2, len(DIGITS) + 1)}
for _k in range(3, len(DIGITS)):
    data_set(DIGITS_BY_NUMBER[_k], DIGITS[:_k], part=True, shipped=True)(digits)
