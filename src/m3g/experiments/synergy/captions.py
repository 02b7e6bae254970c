"""A small version of the data set Symile-M3, composed of captions of Multi30k in four languages."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from m3g import _checks
from m3g.experiments.sources.files import Arrays, find_file

FOLDS = 10
LANGUAGES = ("en", "de", "fr", "cs")
TEXT_FEATURES, PICTURES = 64, 12_000


def captions(source: Path | None) -> Arrays:
    """Return the views, labels and groups of the composed objects, and the wrong candidates of the last view.

    View `captions` contains captions of four random pictures, one per language. View `language` is an unrelated
    sentence, whose language selects one of the four pictures. View `caption` is a caption of that picture in another
    language. `others` (n, 3, d) are the captions of the three pictures that are not selected, in the language of view
    `caption`.
    """
    text, decomposition = (
        _checks.extra("sklearn.feature_extraction.text", "train"),
        _checks.extra("sklearn.decomposition", "train"),
    )
    random = np.random.default_rng(0)
    features: dict[str, np.ndarray] = {}
    sentences: dict[str, list[str]] = {}
    for language in LANGUAGES:
        with gzip.open(find_file(source, f"multi30k/train.{language}.gz"), "rt", encoding="utf-8") as file:
            sentences[language] = file.read().splitlines()[:PICTURES]
        counts = text.TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(sentences[language])
        reduced = decomposition.TruncatedSVD(TEXT_FEATURES, random_state=0).fit_transform(counts)
        features[language] = (reduced / np.maximum(np.linalg.norm(reduced, axis=1, keepdims=True), 1e-6)).astype("f4")
    hashed = text.HashingVectorizer(analyzer="char_wb", ngram_range=(2, 3), n_features=512, alternate_sign=False)
    letters = {name: hashed.transform(lines).toarray().astype("f4") for name, lines in sentences.items()}
    fold = np.arange(PICTURES) % FOLDS
    pictures = np.stack([_permutation_within(fold, random) for _ in range(5)], 1)  # four, and one for the sentence
    selected = random.integers(0, 4, PICTURES)
    target = (selected + random.integers(1, 4, PICTURES)) % 4  # another language
    rows = np.arange(PICTURES)
    shown = np.concatenate([features[language][pictures[:, l]] for l, language in enumerate(LANGUAGES)], 1)
    stacked_letters = np.stack([letters[language] for language in LANGUAGES])
    candidates = np.zeros((PICTURES, 4, 4, TEXT_FEATURES), dtype="f4")  # by object, picture and language
    stacked = np.stack([features[language] for language in LANGUAGES])
    for number in range(4):
        candidates[rows, number, target] = stacked[target, pictures[:, number]]
    flat = candidates.reshape(PICTURES, 4, -1)
    others = (selected[:, None] + np.arange(1, 4)) % 4
    return {
        "captions": shown,
        "language": stacked_letters[selected, pictures[:, 4]],
        "caption": flat[rows, selected],
        "others": flat[rows[:, None], others],
        "label": selected,
        "group": fold,
    }


def _permutation_within(fold: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a permutation of the rows within their folds."""
    out = np.arange(len(fold))
    for number in range(FOLDS):
        rows = np.flatnonzero(fold == number)
        out[rows] = random.permutation(rows)
    return out
