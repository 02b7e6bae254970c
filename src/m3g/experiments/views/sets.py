"""The data sets of `m3g reproduce views`, one entry each. To add a set, write one more reader here.

A reader gets the user's `--data` folder and returns arrays by name: the views that its entry names, `label` if the
entry has labels, and `group` if rows of one group must not be split. It is read once, into `OUT/data/NAME.npz`.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3g import _checks
from m3g.experiments.runner.prepare import edge_directions, once, source_file

Arrays = dict[str, np.ndarray]
MOST_ROWS = 2000


@dataclass(frozen=True)
class ViewSet:
    """A data set: its views' names, how to read it, and whether it has labels, groups, and rows that are only of one
    class (any row of the class is then a right answer in retrieval). A set that is a `part` of another has some of its
    views: it stands in the curve against k, and in no mean over data sets. A set with `gaps` has rows that lack views
    as they are: no more are taken away from its training, and it stands in no curve against the share that is absent.
    """

    views: tuple[str, ...]
    read: Callable[[Path], Arrays]
    labels: bool = True
    groups: bool = False
    by_class: bool = False
    part: bool = False
    gaps: bool = False


SETS: dict[str, ViewSet] = {}


def data_set(name: str, views: Sequence[str], **facts: bool) -> Callable[..., Any]:
    """Register a reader under a name."""

    def keep(read: Callable[[Path], Arrays]) -> Callable[[Path], Arrays]:
        SETS[name] = ViewSet(tuple(views), read, **facts)
        return read

    return keep


def prepare_sets(source: Path | None, target: Path, names: Sequence[str]) -> None:
    """`target/NAME.npz` for every set, unless it is there."""
    for name in names:

        def make(name: str = name) -> Arrays:
            if source is None:
                raise ValueError(f"--data must be the folder that holds the files of {name}, got nothing.")
            wanted = SETS[name]
            arrays = wanted.read(source)
            keys = [*wanted.views, *["label"] * wanted.labels, *["group"] * wanted.groups]
            rows = _some(len(arrays[keys[0]]), MOST_ROWS)
            return {key: arrays[key][rows] for key in keys}

        once(target, f"{name}.npz", make)


def _some(n: int, most: int) -> np.ndarray:
    """At most so many of n rows, always the same."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def _stored(source: Path, name: str) -> Any:
    return np.load(source_file(source, name), allow_pickle=False)


def _matlab(source: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = _checks.extra("scipy.io", "train").loadmat(source_file(source, f"multiview_mat/{name}"))
    return loaded


DIGITS = {"fourier": "fou", "profile": "fac", "karhunen": "kar", "pixels": "pix", "zernike": "zer", "morphology": "mor"}


@data_set("digits", list(DIGITS))
def digits(source: Path) -> Arrays:
    """UCI Multiple Features: handwritten digits, k = 6."""
    with _stored(source, "uci_mfeat.npz") as stored:
        return {**{name: stored[key].astype(np.float32) for name, key in DIGITS.items()}, "label": stored["y"]}


@data_set("digits-2", ["fourier", "profile"])
def two_views_of_digits(source: Path) -> Arrays:
    """The same digits in two views."""
    return digits(source)


@data_set("scenes", ["first", "second", "third"])
def scenes(source: Path) -> Arrays:
    """Scene-15, k = 3."""
    stored = _matlab(source, "Scene_15.mat")
    return {**dict(zip(("first", "second", "third"), stored["X"].ravel())), "label": stored["Y"].ravel()}


@data_set("leaves", ["shape", "texture", "margin"])
def leaves(source: Path) -> Arrays:
    """100Leaves, k = 3."""
    stored = _matlab(source, "100Leaves.mat")
    views = dict(zip(("shape", "texture", "margin"), (view.T for view in stored["data"].ravel())))
    return {**views, "label": stored["truth"].ravel()}


LANGUAGES = ("english", "french", "german", "italian", "spanish")


@data_set("reuters", LANGUAGES)
def reuters(source: Path) -> Arrays:
    """Reuters-1200: documents in k = 5 languages, square roots of the counts of the 500 most frequent words."""
    stored = _matlab(source, "Reuters-1200.mat")
    views = {}
    for language, counts in zip(LANGUAGES, stored["X"].ravel()):
        frequent = np.argsort(-(counts > 0).sum(0), kind="stable")[:500]
        views[language] = np.sqrt(np.maximum(counts[:, np.sort(frequent)], 0)).astype(np.float32)
    return {**views, "label": stored["y"].ravel()}


PROTEINS = tuple(f"view{l:02}" for l in range(12))


@data_set("proteins", PROTEINS)
def proteins(source: Path) -> Arrays:
    """Protein folds, k = 12."""
    with _stored(source, "protein_fold_12views.npz") as stored:
        return {name: stored[name] for name in (*PROTEINS, "label")}


@data_set("tumours", ["mrna", "mirna", "protein"], gaps=True)
def tumours(source: Path) -> Arrays:
    """TCGA breast tumours, k = 3; 70 of the 220 rows really lack the proteins."""
    with _stored(source, "tcga_breast_3omics.npz") as stored:
        return {name: stored[name] for name in ("mrna", "mirna", "protein", "label")}


SENSORS = ("EEG_Fpz_Cz", "EEG_Pz_Oz", "EOG", "EMG", "Resp", "Temp")


@data_set("sleep", SENSORS, groups=True)
def sleep(source: Path) -> Arrays:
    """SleepEDFx: spectral features of k = 6 sensors; a subject is in one split only."""
    with _stored(source, "sleepedfx_sc20_features.npz") as stored:
        views = {name: stored[name].astype(np.float32) for name in SENSORS}
        return {**views, "label": stored["stages"][stored["y"]], "group": stored["subject"]}


@data_set("captions", ["en", "de", "fr", "cs"], labels=False)
def captions(source: Path) -> Arrays:
    """Multi30k: a picture's caption in k = 4 languages, as counts of words hashed to 500 places; no labels."""
    return {
        language: np.stack(
            [hashed(line, 500) for line in _lines(source_file(source, f"multi30k/train.{language}.gz"), 4 * MOST_ROWS)]
        )
        for language in ("en", "de", "fr", "cs")
    }


def _lines(path: Path, most: int) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == most:
                return
            yield line


def hashed(text: str, places: int) -> np.ndarray:
    """How often the words of a text fall on each of so many places; the same on every machine.

    Example:
        >>> float(hashed("A dog, a cat", 50).sum())
        4.0
    """
    words = re.findall(r"\w+", text.lower())
    return np.bincount([zlib.crc32(word.encode()) % places for word in words], minlength=places).astype(np.float32)


STYLES = ("serif", "sans_serif", "monospace", "handwriting", "display")


@data_set("fonts", STYLES, groups=True, by_class=True)
def fonts(source: Path) -> Arrays:
    """A character in k = 5 styles, 14 x 14 pixels; a face is in one split only."""
    with _stored(source, "fonts_5styles_28.npz") as stored:
        names = stored["chars"]
        images = {}
        for style in STYLES:
            faces = stored[style].astype(np.float32)
            small = faces.reshape(*faces.shape[:2], 14, 2, 14, 2).mean((3, 5))
            images[style] = {name: small[:, i].reshape(len(faces), -1) for i, name in enumerate(names)}
    return _joined_by_class(images, rows_per_class=25)


DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


@data_set("pacs", DOMAINS, groups=True, by_class=True)
def pacs(source: Path) -> Arrays:
    """A kind of object in k = 4 domains of PACS, as histograms of the directions of edges in 16 fields."""
    image_module = _checks.extra("PIL.Image", "train")
    found: dict[str, dict[str, list[np.ndarray]]] = {domain: {} for domain in DOMAINS}
    with zipfile.ZipFile(source_file(source, "pacs_64jpg.zip")) as archive:
        for name in sorted(archive.namelist()):
            parts = Path(name).parts
            if len(parts) == 4 and not name.endswith("/"):
                with archive.open(name) as file, image_module.open(file) as image:
                    grey = np.asarray(image.convert("L").resize((64, 64)), dtype=np.float32)
                found[parts[1]].setdefault(parts[2], []).append(edge_directions(grey))
    images = {domain: {kind: np.stack(part) for kind, part in kinds.items()} for domain, kinds in found.items()}
    return _joined_by_class(images, rows_per_class=280)


def _joined_by_class(images: dict[str, dict[str, np.ndarray]], *, rows_per_class: int, folds: int = 5) -> Arrays:
    """Rows of one random image per domain, all of one class; images of one fold (the group) meet only each other."""
    random = np.random.default_rng(0)
    kinds = sorted(set.intersection(*(set(by_kind) for by_kind in images.values())))
    columns: dict[str, list[np.ndarray]] = {domain: [] for domain in images}
    labels, groups = [], []
    for kind in kinds:
        for fold in range(folds):
            number = rows_per_class // folds
            for domain, by_kind in images.items():
                mine = by_kind[kind][fold::folds]
                columns[domain].append(mine[random.integers(len(mine), size=number)])
            labels += [kind] * number
            groups += [f"fold{fold}"] * number
    joined = {domain: np.concatenate(parts) for domain, parts in columns.items()}
    return {**joined, "label": np.array(labels), "group": np.array(groups)}


# The digits with the first k of their views, for the curve against k; two and all six are sets of their own.
DIGITS_BY_NUMBER = {k: f"digits-{k}" if k < len(DIGITS) else "digits" for k in range(2, len(DIGITS) + 1)}
for _k in range(3, len(DIGITS)):
    data_set(DIGITS_BY_NUMBER[_k], list(DIGITS)[:_k], part=True)(digits)
