"""Trained network whose inputs are the user's data: some or all views, as arrays, texts, paths or a whole table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from m3g.data.tables.new_objects import Recipe, from_cells, from_pixels, open_new
from m3g.data.tables.source import SUFFIXES
from m3g.evaluation import Embedded
from m3g.nets import MultiViewNet
from m3g.training.runs.given import Frame, by_column, by_view, convert_view, is_frame, is_rows, is_series, split_frame
from m3g.training.settings.plain_yaml import Plain

# Views in any of the forms that `TrainedNet` describes.
ViewInput: TypeAlias = Tensor | np.ndarray | Sequence[object] | Mapping[str, object] | Frame | str | Path
ROWS = 256  # number of rows embedded at a time


class Scale(nn.Module):
    """`(x - mean) / divisor` per feature: the scaling of the training inputs."""

    def __init__(self, mean: Tensor, divisor: Tensor) -> None:
        super().__init__()
        self.mean = nn.Buffer(mean)
        self.divisor = nn.Buffer(divisor)

    def forward(self, view: Tensor) -> Tensor:
        # A one-dimensional file has one feature per row.
        return (view.reshape(view.shape[0], *self.mean.shape) - self.mean) / self.divisor


class TrainedNet(MultiViewNet):
    """Network with the names and preprocessing of its views: `net(views)` returns embeddings (k, n, d).

    Views are a list of k or a dictionary by name. None or an omitted name is a missing view; a row of NaN is a missing
    entry. Each view is a tensor or an array of any dtype. The network scales views of arrays or vectors as in
    training, so they must be unscaled (unless `scaled`). For a run trained on a table, other floating-point tensors,
    such as those of images, must be preprocessed as in training; the network preprocesses the content of cells (texts,
    paths, or a mapping of columns), images with integer values from 0 to 255, and PIL images.

    A single value (a text, a path, an image, a vector, a dictionary of cells) is a view of one row. The path of a
    table, a data frame, a row of a data frame, and a list of dictionaries (one per row) provide all views whose columns
    they contain. A dictionary may also name single columns of a view of numbers and categories.
    """

    view_names: list[str]
    view_shapes: list[tuple[int, ...]]
    inputs: list[Recipe]  # empty if all views are arrays
    description: dict[str, Plain]  # the content of model.json
    scaled: bool = False  # whether inputs are already scaled, like those of a data module

    def __init__(
        self, encoders: Sequence[nn.Module], projectors: Sequence[nn.Module], predictor: nn.Module | None
    ) -> None:
        super().__init__(encoders, projectors, predictor)
        self.scaling = nn.ModuleDict()  # by the number of the view

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        trust: bool = False,
    ) -> TrainedNet:
        """Load a network like `m3g.load`, under the method name that transformers uses."""
        from m3g.training.runs.export import load

        return load(
            pretrained_model_name_or_path,
            trust=trust,
            revision=revision,
            token=token,
            local_files_only=local_files_only,
        )

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Write the network with its current weights to a folder that `m3g.load` reads."""
        from m3g.training.runs.export import write_network

        write_network(self, save_directory)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = True,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Upload the network with its current weights; return the address."""
        from m3g.training.runs.hub import upload

        message = commit_message or "Upload a network of m3g"
        with tempfile.TemporaryDirectory(prefix="m3g-") as folder:
            self.save_pretrained(folder)
            return upload(folder, repo_id, private=private, token=token, revision=revision, message=message)

    def forward(self, views: ViewInput) -> Tensor:
        """Return embeddings (k, n, d); those of missing views are zero."""
        if isinstance(views, (Tensor, list, tuple)):
            tensors = [view for view in views if isinstance(view, Tensor)]
            any_number = len(self.encoders) == 1 and not self.scaling
            complete = len(tensors) == len(views) and (len(views) == len(self.view_names) or any_number)
            complete = complete and not any(self._has_pixels(view, l) for l, view in enumerate(tensors))
            if complete and not any(view.is_floating_point() and bool(view.isnan().any()) for view in tensors):
                return super().forward([self._cast(view, l) for l, view in enumerate(tensors)])
        return self._embed(views)[0]

    def features(self, views: Sequence[Tensor]) -> list[Tensor]:
        return super().features([self._scale(view, l) for l, view in enumerate(views)])

    def embed_view(self, view: Tensor, l: int) -> Tensor:
        return super().embed_view(self._scale(view, l), l)

    def _scale(self, view: Tensor, l: int) -> Tensor:
        if self.scaled or str(l) not in self.scaling:
            return view
        scaled: Tensor = self.scaling[str(l)](view)
        return scaled

    @torch.no_grad()
    def embed(self, views: ViewInput) -> Embedded:
        """Return the embeddings of every view, zero if missing, and the mask; `.mean` is one vector per object."""
        embeddings, mask = self._embed(views)
        return Embedded(embeddings, mask=mask, view_names=self.view_names)

    def _embed(self, views: ViewInput) -> tuple[Tensor, Tensor]:
        if isinstance(views, (str, Path)):
            parts = [self._embed_present(*part) for part in self._table_rows(views)]
        else:
            parts = [self._embed_present(*self._convert(views))]
        embeddings, masks = zip(*parts)
        return torch.cat(embeddings, dim=1), torch.cat(masks, dim=1)

    def _table_rows(self, path: str | Path) -> Iterator[tuple[list[Tensor | None], Tensor]]:
        """Yield the tensors of the views (None if missing) and the mask of a table, `ROWS` rows at a time."""
        if not self.inputs:
            raise ValueError("views must be arrays for a run that was trained on arrays, got the path of a table.")
        if not (Path(path).is_dir() or (Path(path).exists() and Path(path).suffix in SUFFIXES)):
            hint = f"to embed a single value, pass a dict, such as {{{self.view_names[0]!r}: ...}}"
            raise ValueError(f"views must be a table that exists, got {str(path)!r}: {hint}.")
        columns = open_new(path, self.view_names, self.inputs)
        number = next(len(column.present) for column in columns if column is not None)
        for start in range(0, number, ROWS):
            index = np.arange(start, min(number, start + ROWS))
            mask = np.stack([np.zeros(len(index), bool) if c is None else c.present[index] for c in columns])
            yield [None if c is None else c.take(index) for c in columns], torch.from_numpy(mask)

    def _convert(self, views: ViewInput) -> tuple[list[Tensor | None], Tensor]:
        """Return the tensor of each view (None if it is missing) and the mask, from user input."""
        if is_series(views) and hasattr(views, "to_frame") and hasattr(views, "T"):
            views = views.to_frame().T  # a row of a pandas data frame
        if is_frame(views):
            views = split_frame(views, self.view_names, self.inputs)
        tables_only = self.inputs and all(recipe.get("kind") == "table" for recipe in self.inputs)
        if is_rows(views) and not tables_only:
            views = by_column(views)
        if isinstance(views, Mapping):
            by_name = by_view(views, self.view_names, self.inputs)
            views = [by_name.get(name) for name in self.view_names]
        if not isinstance(views, (Sequence, Tensor, np.ndarray)) or len(views) != len(self.view_names):
            got = len(views) if isinstance(views, Sized) else type(views).__name__
            raise ValueError(
                f"views must be a list of {len(self.view_names)} views (None for a missing view) or a dict such as "
                f"{{{self.view_names[0]!r}: ...}}, got {got}."
            )
        read = [None if view is None else self._convert_view(view, l) for l, view in enumerate(views)]
        sizes = {name: len(part[0]) for name, part in zip(self.view_names, read) if part is not None}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"views must have the same length, and at least one must be given, got {sizes or 'none'}.")
        (number,) = set(sizes.values())
        none_present = torch.zeros(number, dtype=torch.bool)
        mask = torch.stack([none_present if part is None else part[1] for part in read])
        return [None if part is None else part[0] for part in read], mask

    def _convert_view(self, view: object, l: int) -> tuple[Tensor, Tensor]:
        name, shape = self.view_names[l], self.view_shapes[l]
        recipe = self.inputs[l] if self.inputs else {}
        tensor = convert_view(view, name, shape, recipe)
        rows = next(iter(tensor.values())) if isinstance(tensor, Mapping) else tensor
        if (rows.shape if isinstance(rows, Tensor) else (len(rows),))[:1] == (0,):
            raise ValueError(f"view {name!r} must have at least one row, got none.")
        if not isinstance(tensor, Tensor):
            return from_cells(name, recipe, tensor)
        if self._has_pixels(tensor, l):
            tensor = from_pixels(tensor, shape[-1], recipe)
        tensor = tensor.unsqueeze(1) if tensor.ndim == 1 and shape == (1,) else tensor
        if tensor.ndim < 1 or tuple(tensor.shape[1:]) != shape:
            got = tuple(tensor.shape[1:]) if tensor.ndim > 1 else f"an array of shape {tuple(tensor.shape)}"
            raise ValueError(f"view {name!r} must have rows of shape {shape}, got {got}.")
        tensor = self._cast(tensor, l)
        if not tensor.is_floating_point():
            return tensor, torch.ones(len(tensor), dtype=torch.bool)
        flat = tensor.flatten(1)
        present = ~flat.isnan().all(1)
        if not bool(flat[present].isfinite().all()):
            raise ValueError(f"view {name!r} must be finite numbers, or NaN in a whole row, got others.")
        return torch.where(present.reshape(-1, *[1] * len(shape)), tensor, 0.0), present.cpu()

    def _has_pixels(self, view: Tensor, l: int) -> bool:
        """Return whether a view contains images with integer values, which are not preprocessed yet."""
        is_image = any(recipe.get("kind") == "image" for recipe in self.inputs[l : l + 1])
        return is_image and not view.is_floating_point() and view.dtype != torch.bool

    def _cast(self, view: Tensor, l: int) -> Tensor:
        """Move a view to the device and, unless it is text, to the precision of the network."""
        weight = next(self.parameters())
        text = bool(self.inputs) and self.inputs[l].get("kind") == "text"
        return view.to(weight.device) if text else view.to(weight.device, weight.dtype)

    def _embed_present(self, views: Sequence[Tensor | None], mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings (k, n, d) of the present entries, zero for the others, and the mask."""
        empty = (~mask.any(0)).nonzero().flatten().tolist()
        if empty:
            raise ValueError(f"every row must have at least one view, got none in row {empty[0]}.")
        points: dict[int, Tensor] = {}
        for l, view in enumerate(views):
            if view is not None and bool(mask[l].any()):
                present = self._cast(view, l)[mask[l].to(view.device)].split(ROWS)
                points[l] = torch.cat([self.embed_view(part, l) for part in present]).float().cpu()
        out = torch.zeros(*mask.shape, next(iter(points.values())).shape[1])
        for l, rows in points.items():
            out[l, mask[l]] = rows
        return out, mask
