"""Data sets of `m3g reproduce synergy`: objects with three views, any two of which may be independent.

Each reader returns three views, `label` and `group`, and for `captions` also `others`, the wrong candidates of each
object (`m3g.experiments.synergy.captions`). The label is the class of the last view, except in `captions` (the position
of the selected picture) and `utterances` (the sentiment). Objects of the digit and caption sets are composed of rows of
several sources. The rows are first divided into folds, and every object is composed within one fold, its group, so that
no row occurs in two splits.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np

from m3g import _checks
from m3g.experiments.engine.spec import Prepare
from m3g.experiments.sources.files import Arrays, find_file, once
from m3g.experiments.synergy.captions import FOLDS, captions

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
OBJECTS = 12_000
TASK_BITS, UNIQUE_BITS, BIT_FEATURES = 4, 4, 32  # unique bits occur in one view only


@dataclass(frozen=True)
class SynergySet:
    """A data set of objects with three views.

    Args:
        about: one line for the table.
        read: `read(source)` returns the arrays; `source` is the user's `--data` folder or None.
        views: names of the three views; the last is predicted from the other two.
        share: fraction of the task that only all views together determine, in [0, 1]; None if unknown.
        chance: accuracy of a random guess; None if every object is its own class.
    """

    about: str
    read: Callable[[Path | None], Arrays]
    views: tuple[str, str, str]
    share: float | None = None
    chance: float | None = 0.1


def add_modulo_ten(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return (a + b) mod 10, which is independent of a and of b alone."""
    return (first + second) % 10


@dataclass(frozen=True)
class Rows:
    """Rows of one source: features (n, d), classes (n,) and folds (n,)."""

    features: np.ndarray
    label: np.ndarray
    fold: np.ndarray


def stratified(features: np.ndarray, label: np.ndarray, random: np.random.Generator) -> Rows:
    """Return rows divided at random into folds that have all classes."""
    fold = np.empty(len(label), dtype=np.int64)
    for value in np.unique(label):
        rows = random.permutation(np.flatnonzero(label == value))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return Rows(np.asarray(features, dtype=np.float32).reshape(len(label), -1), np.asarray(label, np.int64), fold)


def compose(sources: Sequence[Rows], rule: Rule | None, random: np.random.Generator) -> list[np.ndarray]:
    """Return four arrays (objects,): the row of each object in the source of every view, and its fold.

    With a rule, the first two views are drawn independently, and the rule determines the class of the last; without a
    rule, all views have the class of the first.
    """
    columns: list[list[np.ndarray]] = [[] for _ in range(4)]
    for fold in range(FOLDS):
        fold_rows = [np.flatnonzero(source.fold == fold) for source in sources]
        count = OBJECTS // FOLDS
        first = random.choice(fold_rows[0], count)
        classes = sources[0].label[first]
        second = random.choice(fold_rows[1], count) if rule else _draw(sources[1], fold_rows[1], classes, random)
        if rule:
            classes = rule(classes, sources[1].label[second])
        third = _draw(sources[2], fold_rows[2], classes, random)
        for column, drawn in zip(columns, (first, second, third, np.full(count, fold))):
            column.append(drawn)
    return [np.concatenate(column) for column in columns]


def _draw(source: Rows, rows: np.ndarray, classes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return, for each of the classes (n,), a random one of the `rows` of this class."""
    drawn = np.empty(len(classes), dtype=np.int64)
    for value in np.unique(classes):
        selected = classes == value
        drawn[selected] = random.choice(rows[source.label[rows] == value], int(selected.sum()))
    return drawn


def composed(sources: Mapping[str, Rows], rule: Rule | None, random: np.random.Generator) -> Arrays:
    """Return the arrays of a composed set: features of every view, the class of the last, and the fold as group."""
    *rows, group = compose(list(sources.values()), rule, random)
    arrays = {name: source.features[view_rows] for (name, source), view_rows in zip(sources.items(), rows)}
    return {**arrays, "label": list(sources.values())[-1].label[rows[-1]], "group": group}


def built_in_digits(second: str, rule: Rule | None) -> Callable[[Path | None], Arrays]:
    """Return a reader of three feature sets of the built-in digits.

    Given the classes, the row of each view is drawn independently.
    """

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        with (
            resources.as_file(resources.files("m3g.data") / "files" / "mfeat.npz") as file,
            np.load(file, allow_pickle=False) as stored,
        ):
            label, names = stored["digit"], ("pixels", second, "karhunen")
            sources = {name: stratified(stored[name], label, random) for name in names}
        return composed(sources, rule, random)

    return read


def multimodal_digits(rule: Rule | None) -> Callable[[Path | None], Arrays]:
    """Return a reader of objects with a handwritten, a spoken and a printed digit."""

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        with np.load(find_file(source, "uci_mfeat.npz"), allow_pickle=False) as stored:
            handwritten = stratified(stored["kar"], stored["y"], random)
        spoken = stratified(*spoken_digits(find_file(source, "spoken_digits_3speakers.zip")), random)
        with np.load(find_file(source, "fonts_5styles_28.npz"), allow_pickle=False) as stored:
            digits = [i for i, name in enumerate(stored["chars"]) if name.isdigit()]
            faces = np.concatenate([stored[style][:, digits] for style in stored.files if style != "chars"])
        small = faces.reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255
        printed = stratified(small, np.tile(np.arange(10), len(faces)), random)
        return composed({"handwritten": handwritten, "spoken": spoken, "printed": printed}, rule, random)

    return read


def spoken_digits(file: Path, *, bands: int = 24, frames: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Return log energies of `bands` frequency bands in `frames` equal parts of each recording, and the digits."""
    sound, signal = _checks.extra("soundfile", "train"), _checks.extra("scipy.signal", "train")
    features, label = [], []
    with zipfile.ZipFile(file) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".wav")):
            wave, rate = sound.read(io.BytesIO(archive.read(name)), dtype="float32")
            power = signal.spectrogram(wave, rate, nperseg=200, noverlap=100)[2]
            edges = np.round(np.geomspace(2, len(power), bands + 1)).astype(int)
            edges = np.maximum.accumulate(np.maximum(edges, np.arange(bands + 1) + 2))
            parts = [block.mean(1) for block in np.array_split(power, frames, axis=1)]
            energies = [[part[low : max(high, low + 1)].mean() for low, high in pairwise(edges)] for part in parts]
            features.append(np.log(np.asarray(energies, dtype=np.float32) + 1e-10).ravel())
            label.append(int(Path(name).name.split("_")[0]))
    return np.stack(features), np.array(label)


def bits(share: float) -> Callable[[Path | None], Arrays]:
    """Return a reader of four task bits: a fraction `share` of them are XOR bits, the others are equal in all views.

    An XOR bit of the third view is the XOR of those of the first two, which are independent. A view is a random linear
    map of its task bits and four independent bits, with Gaussian noise.
    """

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        synergy = round(share * TASK_BITS)
        first, second = random.integers(0, 2, (2, OBJECTS, TASK_BITS))
        second[:, synergy:] = first[:, synergy:]
        third = np.where(np.arange(TASK_BITS) < synergy, first ^ second, first)
        arrays: Arrays = {}
        for name, task in zip(("first", "second", "third"), (first, second, third)):
            unique = random.integers(0, 2, (OBJECTS, UNIQUE_BITS))
            signs = 2.0 * np.concatenate([task, unique], 1) - 1
            features = signs @ random.standard_normal((signs.shape[1], BIT_FEATURES))
            arrays[name] = (features + 0.5 * random.standard_normal(features.shape)).astype(np.float32)
        return {**arrays, "label": third @ (1 << np.arange(TASK_BITS)), "group": np.arange(OBJECTS) % FOLDS}

    return read


def utterances(source: Path | None) -> Arrays:
    """Return the arrays of CMU-MOSI: audio, video and text features of utterances, with their sentiment."""
    with np.load(find_file(source, "mosi_3views.npz"), allow_pickle=False) as stored:
        arrays: Arrays = {name: stored[name] for name in ("audio", "video", "text", "label")}
    return {**arrays, "group": np.arange(len(arrays["label"]))}


_BITS = ("first", "second", "third")
SETS: dict[str, SynergySet] = {
    "digits": SynergySet(
        "built-in digits: pixels of a, profiles of b, Karhunen-Loève coefficients of (a + b) mod 10",
        built_in_digits("profile", add_modulo_ten),
        ("pixels", "profile", "karhunen"),
        share=1.0,
    ),
    "digits-hard": SynergySet(
        "built-in digits: pixels of a, Fourier coefficients of b, Karhunen-Loève coefficients of (a + b) mod 10",
        built_in_digits("fourier", add_modulo_ten),
        ("pixels", "fourier", "karhunen"),
        share=1.0,
    ),
    "digits-same": SynergySet(
        "built-in digits: the same digit in pixels, profiles and Karhunen-Loève coefficients",
        built_in_digits("profile", None),
        ("pixels", "profile", "karhunen"),
        share=0.0,
    ),
    "digit-sum": SynergySet(
        "handwritten a, spoken b, printed (a + b) mod 10",
        multimodal_digits(add_modulo_ten),
        ("handwritten", "spoken", "printed"),
        share=1.0,
    ),
    "digit-same": SynergySet(
        "the same digit handwritten, spoken and printed",
        multimodal_digits(None),
        ("handwritten", "spoken", "printed"),
        share=0.0,
    ),
    **{
        f"bits-{percent}": SynergySet(
            f"four bits, {percent} % of them XOR bits of three views",
            bits(percent / 100),
            _BITS,
            percent / 100,
            1 / 16,
        )
        for percent in (0, 25, 50, 75, 100)
    },
    "captions": SynergySet(
        "captions of four pictures, each in another language; a sentence whose language selects one; its caption",
        captions,
        ("captions", "language", "caption"),
        chance=0.25,
    ),
    "utterances": SynergySet(
        "CMU-MOSI: audio, video and text features of an utterance",
        utterances,
        ("audio", "video", "text"),
        chance=None,
    ),
}


TUNED_ON = {f"bits-{percent}": "bits-50" for percent in (0, 25, 75, 100)}  # sets tuned on another set of the family


def sets(scale: str) -> dict[str, Prepare]:
    """Return the sets by name, each with a function that writes its file unless the file exists.

    If a set is tuned on another set, the function also writes the file of the other set.
    """

    def preparer(name: str) -> Prepare:
        def prepare(source: Path | None, target: Path) -> None:
            for required in {name, TUNED_ON.get(name, name)}:
                once(target, f"{required}.npz", partial(SETS[required].read, source))

        return prepare

    return {name: preparer(name) for name in SETS}
