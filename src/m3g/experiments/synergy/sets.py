"""Data sets of `m3g reproduce synergy`: objects with three views, any two of which may be independent.

Each reader returns three views, `label` (the class of the last view) and `group`. Objects are composed of rows of
smaller sets. Those rows are divided into folds first and every object is composed within one fold, its group, so that
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
TASK_BITS, UNIQUE_BITS, BIT_FEATURES = 4, 4, 32


@dataclass(frozen=True)
class SynergySet:
    """A data set with a known or unknown fraction of synergy.

    Args:
        about: one line for the table.
        read: `read(source)` returns the arrays; `source` is the user's `--data` folder or None.
        views: names of the three views; the last is predicted from the other two.
        share: fraction of the task that only all views together determine, in [0, 1]; None if unknown.
        chance: accuracy of a guess; None if every object is its own class.
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
    """Divide rows into folds such that each fold has all classes."""
    fold = np.empty(len(label), dtype=np.int64)
    for one in np.unique(label):
        rows = random.permutation(np.flatnonzero(label == one))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return Rows(np.asarray(features, dtype=np.float32).reshape(len(label), -1), np.asarray(label, np.int64), fold)


def compose(parts: Sequence[Rows], rule: Rule | None, random: np.random.Generator) -> list[np.ndarray]:
    """Return, for each object, the row in the source of every view, and last the fold.

    With a rule the first two views are drawn independently, and the rule determines the class of the last; without one
    all views have the class of the first.
    """
    chosen: list[list[np.ndarray]] = [[] for _ in range(4)]
    for fold in range(FOLDS):
        inside = [np.flatnonzero(part.fold == fold) for part in parts]
        count = OBJECTS // FOLDS
        first = random.choice(inside[0], count)
        wanted = parts[0].label[first]
        second = random.choice(inside[1], count) if rule else _of_class(parts[1], inside[1], wanted, random)
        if rule:
            wanted = rule(wanted, parts[1].label[second])
        third = _of_class(parts[2], inside[2], wanted, random)
        for parts_of, drawn in zip(chosen, (first, second, third, np.full(count, fold))):
            parts_of.append(drawn)
    return [np.concatenate(drawn) for drawn in chosen]


def _of_class(part: Rows, inside: np.ndarray, wanted: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a random row of each wanted class."""
    out = np.empty(len(wanted), dtype=np.int64)
    for one in np.unique(wanted):
        places = wanted == one
        out[places] = random.choice(inside[part.label[inside] == one], int(places.sum()))
    return out


def composed(parts: Mapping[str, Rows], rule: Rule | None, random: np.random.Generator) -> Arrays:
    """Return the arrays of a composed set: features of every view, the class of the last, and the fold as group."""
    *rows, group = compose(list(parts.values()), rule, random)
    arrays = {name: part.features[chosen] for (name, part), chosen in zip(parts.items(), rows)}
    return {**arrays, "label": list(parts.values())[-1].label[rows[-1]], "group": group}


def embedded_digits(second: str, rule: Rule | None) -> Callable[[Path | None], Arrays]:
    """Return a reader of three feature sets of the built-in digits; the views of an object are different drawings."""

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        with (
            resources.as_file(resources.files("m3g.data") / "files" / "mfeat.npz") as file,
            np.load(file, allow_pickle=False) as stored,
        ):
            label, names = stored["digit"], ("pixels", second, "karhunen")
            parts = {name: stratified(stored[name], label, random) for name in names}
        return composed(parts, rule, random)

    return read


def multimodal_digits(rule: Rule | None) -> Callable[[Path | None], Arrays]:
    """Return a reader of a handwritten, a spoken and a printed digit."""

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        with np.load(find_file(source, "uci_mfeat.npz"), allow_pickle=False) as stored:
            handwritten = stratified(stored["kar"], stored["y"], random)
        spoken = stratified(*spoken_digits(find_file(source, "spoken_digits_3speakers.zip")), random)
        with np.load(find_file(source, "fonts_5styles_28.npz"), allow_pickle=False) as stored:
            digits = [place for place, name in enumerate(stored["chars"]) if name.isdigit()]
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
    """Return a reader of four task bits: the fraction `share` are XOR bits of three views, the others common to all.

    A view is a random linear map of its task bits and four independent bits, with Gaussian noise.
    """

    def read(source: Path | None) -> Arrays:
        random = np.random.default_rng(0)
        synergy = round(share * TASK_BITS)
        first, second = random.integers(0, 2, (2, OBJECTS, TASK_BITS))
        second[:, synergy:] = first[:, synergy:]
        third = np.where(np.arange(TASK_BITS) < synergy, first ^ second, first)
        arrays: Arrays = {}
        for name, task in zip(("first", "second", "third"), (first, second, third)):
            own = random.integers(0, 2, (OBJECTS, UNIQUE_BITS))
            signs = 2.0 * np.concatenate([task, own], 1) - 1
            shown = signs @ random.standard_normal((signs.shape[1], BIT_FEATURES))
            arrays[name] = (shown + 0.5 * random.standard_normal(shown.shape)).astype(np.float32)
        return {**arrays, "label": third @ (1 << np.arange(TASK_BITS)), "group": np.arange(OBJECTS) % FOLDS}

    return read


def utterances(source: Path | None) -> Arrays:
    """Read CMU-MOSI: text, audio and video features of utterances, with their sentiment."""
    with np.load(find_file(source, "mosi_3views.npz"), allow_pickle=False) as stored:
        arrays: Arrays = {name: stored[name] for name in ("audio", "video", "text", "label")}
    return {**arrays, "group": np.arange(len(arrays["label"]))}


_BITS = ("first", "second", "third")
SETS: dict[str, SynergySet] = {
    "digits": SynergySet(
        "built-in digits: pixels of a, profiles of b, Karhunen-Loève coefficients of (a + b) mod 10",
        embedded_digits("profile", add_modulo_ten),
        ("pixels", "profile", "karhunen"),
        share=1.0,
    ),
    "digits-hard": SynergySet(
        "built-in digits: pixels of a, Fourier coefficients of b, Karhunen-Loève coefficients of (a + b) mod 10",
        embedded_digits("fourier", add_modulo_ten),
        ("pixels", "fourier", "karhunen"),
        share=1.0,
    ),
    "digits-same": SynergySet(
        "built-in digits: the same digit in pixels, profiles and Karhunen-Loève coefficients",
        embedded_digits("profile", None),
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
        "four captions of four pictures, a sentence whose language selects one, its caption in another language",
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


# sets whose temperatures are chosen on another set of the same family
TUNED_ON = {f"bits-{percent}": "bits-50" for percent in (0, 25, 75, 100)}


def sets(scale: str) -> dict[str, Prepare]:
    """Return the sets by name, each with the function that writes its file once."""

    def preparer(name: str) -> Prepare:
        def prepare(source: Path | None, target: Path) -> None:
            for each in {name, TUNED_ON.get(name, name)}:
                once(target, f"{each}.npz", partial(SETS[each].read, source))

        return prepare

    return {name: preparer(name) for name in SETS}
