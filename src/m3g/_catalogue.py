"""Catalogue of losses, encoders, data sets and kinds of views by name, with the options of each.

The options of a class are the arguments of its constructor. They are parsed from the source of the class, because its
import takes seconds and a misspelt option should be reported at once.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from m3g._values import one_of


class Entry(NamedTuple):
    """Catalogue entry.

    Attributes:
        where: the class, or its location "module:Class".
        summary: its purpose.
        cost: its complexity in the numbers of points n, views k and features d.
    """

    where: str | Callable[..., object]
    summary: str = ""
    cost: str = ""

    def load(self) -> Any:
        """Return the class."""
        if not isinstance(self.where, str):
            return self.where
        module, _, name = self.where.partition(":")
        return getattr(importlib.import_module(module), name)

    def options(self) -> list[str]:
        """Return the names of the constructor's arguments.

        Example:
            >>> LOSSES["mmcr"].options(), ENCODERS["mlp"].options()
            (['compression', 'normalize', 'gather'], ['in_features', 'width', 'depth', 'dropout'])
        """
        return list(self.annotations())

    def annotations(self) -> dict[str, str]:
        """Return the type annotation of each argument of the constructor, as in the source; "" if there is none.

        Example:
            >>> LOSSES["mmcr"].annotations()
            {'compression': 'float', 'normalize': 'bool', 'gather': 'bool'}
        """
        if not isinstance(self.where, str):
            parameters = inspect.signature(self.where).parameters
            return {name: "" if p.annotation is p.empty else str(p.annotation) for name, p in parameters.items()}
        constructor = _member(self.where, "__init__")
        assert isinstance(constructor, ast.FunctionDef), self.where
        return {
            argument.arg: "" if argument.annotation is None else ast.unparse(argument.annotation)
            for argument in (*constructor.args.args[1:], *constructor.args.kwonlyargs)
        }

    def headline(self) -> str:
        """Return the first line of the class's docstring."""
        assert isinstance(self.where, str)
        return (ast.get_docstring(_definition(self.where)) or "").partition("\n")[0]


LOSSES = {
    "m3g": Entry("m3g.losses.m3g:M3GLoss", "gap between the true matching of k views and the best polymatching", "n^k"),
    "m3g-pairs": Entry(
        "m3g.losses.m3g_pairs:M3GPairs",
        "two-view m3g of all pairs, and of each view with the average of the rest",
        "k² n² d",
    ),
    "m3g-rest": Entry(
        "m3g.losses.m3g_rest:M3GRest",
        "m3g of each view with the product of the rest: dependence among all views",
        "k n² d",
    ),
    "kl": Entry(
        "m3g.losses.kl:KLLoss",
        "KL divergence between true matching and best polymatching, of tuples (gap / epsilon) or of pairs",
        "n^k",
    ),
    "infonce-pwe": Entry("m3g.losses.infonce:InfoNCEPairwise", "InfoNCE, mean over the pairs of views", "k² n² d"),
    "infonce-ave": Entry(
        "m3g.losses.infonce:InfoNCEAverage", "InfoNCE, each view against the average of the rest", "k n² d"
    ),
    "byol-pwe": Entry(
        "m3g.losses.byol:BYOLPairwise", "BYOL, mean over the pairs of views; requires a teacher", "k² n d"
    ),
    "byol-ave": Entry(
        "m3g.losses.byol:BYOLAverage",
        "BYOL, each view against the average of the rest; requires a teacher",
        "k n d",
    ),
    "symile": Entry(
        "m3g.losses.symile:Symile",
        "multilinear inner product of whole tuples",
        "k n² d, or n^k d with negatives=n_squared",
    ),
    "gram": Entry("m3g.losses.gram:Gram", "volume spanned by an anchor view and the rest", "n² k³ + k n² d"),
    "triangle": Entry("m3g.losses.triangle:Triangle", "area of the triangle of three views (k = 3)", "n² d"),
    "polyview": Entry(
        "m3g.losses.polyview:PolyView", "every view predicts every other, negatives in all views", "k² n² d"
    ),
    "mv-infonce": Entry(
        "m3g.losses.mv_infonce:MVInfoNCE", "all pairs of views of an object in one InfoNCE term", "k² n² d"
    ),
    "mv-dhel": Entry("m3g.losses.mv_dhel:MVDHEL", "aligns across views, spreads within each view", "k n² d"),
    "mmcr": Entry(
        "m3g.losses.mmcr:MMCR", "nuclear norms of centroids and of each object's views", "n d min(n, d) + n k² d"
    ),
    "vicreg": Entry("m3g.losses.vicreg:VICReg", "variance, invariance and covariance, no negatives", "k n d²"),
    "pmrl": Entry(
        "m3g.losses.pmrl:PMRL",
        "singular values of each object's views, contrast of leading directions",
        "n k² d + n² d",
    ),
    "lejepa": Entry(
        "m3g.losses.lejepa:LeJEPA",
        "attracts views to their mean, and each view to a normal distribution along A random directions",
        "k n A d",
    ),
    "barlow-twins": Entry(
        "m3g.losses.barlow_twins:BarlowTwins", "correlations of features near the identity, over pairs", "k² n d²"
    ),
    "mcca": Entry("m3g.losses.mcca:MCCA", "canonical correlations of k views (deep MCCA, GCCA)", "k² n d² + k³ d³"),
}

ENCODERS = {
    "mlp": Entry("m3g.nets.encoders:MLP", "rows of numbers: a multilayer perceptron"),
    "linear": Entry("m3g.nets.linear:Linear", "rows of numbers: a linear map, which starts at linear CCA"),
    "residual": Entry("m3g.nets.linear:Residual", "rows of numbers: linear CCA and a perceptron that starts at zero"),
    "conv": Entry("m3g.nets.encoders:ConvNet", "small images: a convolutional network"),
    "vit": Entry("m3g.nets.backbones:ViT", "larger images: a vision transformer"),
    "text": Entry("m3g.nets.text:ByteTransformer", "text: a transformer over bytes"),
    "tfidf": Entry("m3g.nets.linear:Tfidf", "text: TF-IDF and SVD of the training rows, then a linear map"),
    "spectrogram": Entry("m3g.nets.spectrogram:SpectrogramNet", "sound: convolutions over a spectrogram"),
    "eeg": Entry("m3g.nets.encoders:EEGEncoder", "one signal channel: the paper's convolutions"),
    "transformers": Entry("m3g.nets.backbones:TransformersEncoder", "images, text, sound: any transformers model"),
}

DATA = {
    "multiple-features": Entry("m3g.data.tables.multiple_features:MultipleFeatures"),
    "arrays": Entry("m3g.data.tables.arrays:Arrays"),
    "objects": Entry("m3g.data.tables.objects:Objects"),
    "images": Entry("m3g.data.images.folders:ImageFolders"),
    "image-arrays": Entry("m3g.data.images.arrays:ImageArrays"),
    "domains": Entry("m3g.data.images.domains:Domains"),
    "domain-arrays": Entry("m3g.data.images.domain_arrays:DomainArrays"),
    "signals": Entry("m3g.data.signals.windows:Signals"),
}

READERS = {  # by the kind of a view in a table
    "image": Entry("m3g.data.tables.file_readers:ImageReader"),
    "audio": Entry("m3g.data.tables.file_readers:SoundReader"),
    "text": Entry("m3g.data.tables.reader:TextReader"),
    "tfidf": Entry("m3g.data.tables.tfidf:TfidfReader"),
    "vector": Entry("m3g.data.tables.reader:VectorReader"),
    "table": Entry("m3g.data.tables.table_reader:TableReader"),
}

VIEW_OPTIONS = ("share", "frozen", "learning_rate")  # training options of a view, in addition to those of its encoder


@cache
def reading_options() -> tuple[str, ...]:
    """Return the names of the options that determine how a view is read: its kind, its columns, and reader options.

    Example:
        >>> reading_options()
        ('kind', 'columns', 'size', 'rate', 'seconds', 'length', 'components')
    """
    options = [_member(str(reader.where), "options") for reader in READERS.values()]
    return tuple(dict.fromkeys(["kind", "columns", *(name for names in options for name in ast.literal_eval(names))]))


def find(what: str, name: object, entries: dict[str, Entry]) -> Entry:
    """Return the entry with this name; if there is none, raise an error that refers to the argument as `what`."""
    return entries[one_of(what, name, entries)]


@cache
def _tree(module: str) -> ast.Module:
    path = Path(__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _definition(where: str) -> ast.ClassDef:
    module, _, name = where.partition(":")
    return next(node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == name)


def _member(where: str, name: str) -> ast.AST:
    """Return the syntax tree of a method or of the value of a class attribute, defined by a class or its first base."""
    module, definition = where.partition(":")[0], _definition(where)
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                return node.value
    base = definition.bases[0]
    assert isinstance(base, ast.Name), where
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and base.id in [alias.name for alias in node.names]:
            module = str(node.module)
    return _member(f"{module}:{base.id}", name)
