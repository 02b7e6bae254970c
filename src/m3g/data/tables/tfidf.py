"""Text as TF-IDF vectors, projected onto the leading singular directions of the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g._options import Processor
from m3g.data.tables.reader import Cells, Recipe, TextReader

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

COMPONENTS = 300  # default number of singular directions
MAX_WORDS = 50_000  # maximum size of the vocabulary, which contains the most frequent words
# A word is a sequence of letters, digits and underscores, or a single Chinese or Japanese character.
_WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"


class TfidfReader(TextReader):
    """Reader of text as TF-IDF vectors, projected onto the leading singular directions of the training rows.

    Vocabulary, inverse document frequencies (idf) and directions are fitted by scikit-learn to the training rows. The
    words are part of the recipe; `tensors` returns the idf and the directions, which are stored with the weights of the
    network.

    Args:
        components: number of singular directions; by default 300, at most the number of texts and of words.
        words, idf, directions: results of an earlier fit: V words, and tensors (V,) and (components, V).
        fitted: the results of an earlier fit in one mapping.
    """

    kind = "tfidf"
    options = ("components",)
    processed = ()

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        fitted: Recipe | None = None,
        words: list[str] | None = None,
        idf: Tensor | None = None,
        directions: Tensor | None = None,
        processor: Processor | None = None,
        **given: float,
    ):
        super().__init__(name, columns, processor=processor, **given)
        self.dtype = torch.float32
        self._train_texts: list[str] = []
        self._words: list[str] | None = None
        if fitted is not None:
            self._set(*(fitted.get(part) for part in ("words", "idf", "directions")))
        elif words is not None:
            self._set(words, idf, directions)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._directions),)

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        if self._words is None:
            texts = zip(self._texts(cells), train)
            self._train_texts += [text for text, is_train in texts if is_train and text is not None]

    def finish(self) -> None:
        if self._words is not None:
            return
        decomposition = _checks.extra("sklearn.decomposition", "train")
        vectorizer = self._new_vectorizer(max_features=MAX_WORDS)
        try:
            features = vectorizer.fit_transform(self._train_texts)
        except ValueError:
            raise ValueError(
                f"view {self.name!r} must have words in its training rows to be read as TF-IDF, got none: use "
                f"--view.{self.name}.encoder text."
            ) from None
        number = min(int(self.given.get("components", COMPONENTS)), *features.shape)
        if features.shape[1] > 1:
            with np.errstate(invalid="ignore"):  # the variance of a single row is 0
                directions = decomposition.TruncatedSVD(number, random_state=0).fit(features).components_
        else:
            directions = np.ones((1, 1))  # TruncatedSVD requires two features
        words = vectorizer.get_feature_names_out().tolist()
        self._train_texts = []
        self._set(words, torch.from_numpy(vectorizer.idf_), torch.from_numpy(directions))

    def _set(self, words: object, idf: object, directions: object) -> None:
        """Set the results of a fit, after validating their types and sizes."""
        if not (
            isinstance(words, list)
            and words
            and all(isinstance(word, str) for word in words)
            and len(set(words)) == len(words)
            and isinstance(idf, Tensor)
            and isinstance(directions, Tensor)
            and tuple(idf.shape) == (len(words),)
            and directions.ndim == 2
            and directions.shape[1] == len(words)
        ):
            raise ValueError(f"view {self.name!r} must have words, idf and directions of matching sizes, got others.")
        self._words = words
        self._idf, self._directions = idf.float().contiguous(), directions.float().contiguous()
        self._vectorizer = self._new_vectorizer(vocabulary={word: i for i, word in enumerate(words)})
        self._vectorizer.idf_ = self._idf.numpy()

    @staticmethod
    def _new_vectorizer(
        *, max_features: int | None = None, vocabulary: dict[str, int] | None = None
    ) -> TfidfVectorizer:
        return _checks.extra("sklearn.feature_extraction.text", "train").TfidfVectorizer(
            token_pattern=_WORD,
            sublinear_tf=True,
            dtype=np.float32,
            max_features=max_features,
            vocabulary=vocabulary,
        )

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        texts = self._texts(cells)
        features = self._vectorizer.transform([text or "" for text in texts])
        stored = np.asarray(features @ self._directions.numpy().T, dtype=np.float32)
        return stored, np.array([text is not None for text in texts])

    def unknown(self, cells: Cells) -> list[object]:
        texts = [text for text in self._texts(cells) if text is not None]
        if not texts:
            return []
        return [text for text, known in zip(texts, self._vectorizer.transform(texts).getnnz(1)) if not known]

    def recipe(self) -> Recipe:
        return {"kind": self.kind, "columns": self.columns, "words": self._words}

    def tensors(self) -> dict[str, Tensor]:
        return {"idf": self._idf, "directions": self._directions}
