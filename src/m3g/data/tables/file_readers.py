"""Readers of images and sounds: cells of a table are paths, whose files are read on demand, or file contents."""

from __future__ import annotations

import io
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar, TypedDict

import numpy as np
import scipy.signal
import torch
from torch import Tensor

from m3g import _checks
from m3g._options import Processor
from m3g.data.images.augment import as_float, normalize
from m3g.data.images.reading import load_image
from m3g.data.storage.damaged import damaged_images, damaged_sounds, report_damaged
from m3g.data.storage.limits import open_image
from m3g.data.storage.moved import Folders, MissingFileError
from m3g.data.tables.kinds import EMPTY_TEXT
from m3g.data.tables.reader import Cells, Reader, Recipe

MAX_IMAGE_SIDE = 224  # pixels of a side, by default
SAMPLED_IMAGES = 64  # images that determine the default size
MAX_RATE = 16000  # samples per second, by default
MAX_SOUND_LENGTH = 10.0  # seconds, by default
RATES = (1000, 192000)  # range of the rates that a user may set


class FileReader(Reader):
    """Base class of image and sound readers.

    A cell is a path or the content of a file. If the column is known to have only paths, files are decoded when a batch
    is read; otherwise, `encode` decodes all of them.
    """

    stored_type: ClassVar[type[np.generic]]

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        allow_outside: bool = False,
        processor: Processor | None = None,
        **given: float,
    ):
        self.allow_outside = allow_outside  # whether paths may point outside the table's folder
        self._num_damaged = 0
        self._contents: bool | None = None  # whether structs of Hugging Face `datasets` contain bytes
        super().__init__(name, columns, processor=processor, **given)

    def recipe(self) -> Recipe:
        return {**super().recipe(), **({"allow_outside": True} if self.allow_outside else {})}

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        column = cells.columns[self._column]
        if _checks.extra("pyarrow", "train").types.is_struct(column.type):
            stored = column.type.get_field_index("bytes") >= 0 and column.field("bytes").null_count < len(column)
            self._contents = bool(self._contents) or stored

    def _are_paths(self, cells: Cells) -> bool:
        """Return whether the column contains only paths, according to its type and the cells passed to `learn`."""
        types, kind = _checks.extra("pyarrow", "train").types, cells.columns[self._column].type
        if types.is_struct(kind):
            return self._contents is False
        return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_null))

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        files = self._files(cells)
        present = np.array([file is not None for file in files])
        if self._are_paths(cells):
            return np.array([None if file is None else str(file) for file in files], dtype=object), present
        stored = np.zeros((len(files), *self.shape), dtype=self.stored_type)
        for row, file in enumerate(files):
            if file is not None:
                try:
                    stored[row] = self._decode(_opened(file))
                except (OSError, SyntaxError, ValueError, RuntimeError):  # errors of PIL and soundfile
                    self._num_damaged += 1
                    present[row] = False
        return stored, present

    def damaged(self, stored: np.ndarray) -> np.ndarray:
        if stored.dtype != object:
            total, where = len(stored) + self._num_damaged, f"in the table, view {self.name!r}"
            report_damaged(self._num_damaged, total, "images" if self.kind == "image" else "sounds", where)
            return np.zeros(len(stored), dtype=bool)
        paths = [Path(path) for path in dict.fromkeys(stored.tolist())]
        if len(paths) == 1 < len(stored):
            self.notes.append(f"view {self.name!r} is the same file in all rows and carries no information")
        damaged = {str(path) for path in self._damaged_files(paths)}
        return np.array([path in damaged for path in stored.tolist()], dtype=bool)

    def tensor(self, stored: np.ndarray) -> Tensor:
        if stored.dtype != object:
            return torch.from_numpy(stored)
        return torch.from_numpy(np.stack([self._decode(Path(path)) for path in stored.tolist()]))

    def _files(self, cells: Cells) -> list[Path | bytes | None]:
        """Return the path or content in every cell; raise if a path does not exist."""
        files: list[Path | bytes | None] = []
        for row, cell in enumerate(cells.columns[self._column].to_pylist(), start=cells.start):
            if isinstance(cell, dict):
                cell = cell.get("bytes") or cell.get("path")
            if cell is None or cell in ("", b"", *EMPTY_TEXT):
                files.append(None)
            elif isinstance(cell, bytes):
                files.append(cell)
            elif not isinstance(cell, str):
                raise self._cell_error(row, f"{self.kind} paths", repr(cell)[:40], "correct it")
            else:
                path = cells.folders.find(cell, allow_outside=self.allow_outside)
                if path is None:
                    raise self._missing(row, cell, cells.folders)
                files.append(path)
        return files

    def _missing(self, row: int, cell: str, folders: Folders) -> MissingFileError:
        where = " or ".join(repr(str(folder)) for folder in (folders.root, folders.table) if folder is not None)
        if not self.allow_outside and not folders.contain(folders.table / cell):
            advice = "move it there, or allow others with --data_options.allow_outside true"
            return MissingFileError(self._cell_error(row, f"files below {where}", repr(cell), advice))
        advice = f"no such file below {where}" if folders.root or not Path(cell).is_absolute() else "no such file"
        return MissingFileError(self._cell_error(row, "files that exist", repr(cell), advice))

    @abstractmethod
    def _decode(self, file: Path | BinaryIO) -> np.ndarray: ...

    @abstractmethod
    def _damaged_files(self, paths: Sequence[Path]) -> Iterable[Path]: ...


def _opened(file: Path | bytes) -> Path | BinaryIO:
    return io.BytesIO(file) if isinstance(file, bytes) else file


class Colours(TypedDict, total=False):
    """Mean and standard deviation of the channels of images."""

    mean: Sequence[float]
    std: Sequence[float]


def colours(processor: Processor) -> Colours:
    """Return the mean and standard deviation for scaling images, if a pretrained model defines them."""
    return {"mean": processor["mean"], "std": processor["std"]} if "mean" in processor else {}


class ImageReader(FileReader):
    """Reader of images as squares of one size, normalised with the statistics of ImageNet or of a pretrained model."""

    kind = "image"
    options = ("size",)
    processed = ("size", "mean", "std")
    stored_type = np.uint8

    def _prepare(self) -> None:
        if "size" in self.processor:
            self.given.setdefault("size", self.processor["size"])
        self._sides: list[int] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, int(self.given["size"]), int(self.given["size"]))

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        super().learn(cells, train)
        if "size" in self.given or len(self._sides) >= SAMPLED_IMAGES:
            return
        for file in [file for file in self._files(cells) if file is not None]:
            try:
                with open_image(_opened(file)) as image:
                    self._sides.append(min(image.size))
            except (OSError, SyntaxError, ValueError):
                continue  # reported by `damaged`
            if len(self._sides) >= SAMPLED_IMAGES:
                break

    def finish(self) -> None:
        if "size" not in self.given:
            median = int(np.median(self._sides)) if self._sides else 32
            # Sizes above 64 are multiples of 16, the patch size of a vision transformer.
            self.given["size"] = median if median <= 64 else min(MAX_IMAGE_SIDE, median // 16 * 16)

    def tensor(self, stored: np.ndarray) -> Tensor:
        return normalize(as_float(super().tensor(stored)), **colours(self.processor))

    def _decode(self, file: Path | BinaryIO) -> np.ndarray:
        return load_image(file, self.shape[-1]).numpy()

    def _damaged_files(self, paths: Sequence[Path]) -> set[Path]:
        return damaged_images(paths)


class SoundReader(FileReader):
    """Reader of mono sounds of one rate and length: longer sounds are cropped, shorter sounds padded with silence."""

    kind = "audio"
    options = ("rate", "seconds")
    processed = ("rate", "normalize")
    stored_type = np.float32

    def _prepare(self) -> None:
        if "rate" in self.processor:
            self.given.setdefault("rate", self.processor["rate"])
        rate = self.given.get("rate")
        if rate is not None and not RATES[0] <= rate <= RATES[1]:
            raise ValueError(
                f"view.{self.name}.rate must be from {RATES[0]} to {RATES[1]} samples per second, got {rate!r}."
            )
        self._rates: Counter[int] = Counter()
        self._durations: list[float] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return (max(1, round(self.given["rate"] * self.given["seconds"])),)

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        super().learn(cells, train)
        if "rate" in self.given and "seconds" in self.given:
            return
        soundfile = _checks.extra("soundfile", "train")
        for file in [file for file in self._files(cells) if file is not None]:
            try:
                sound = soundfile.info(io.BytesIO(file) if isinstance(file, bytes) else str(file))
            except (OSError, RuntimeError):
                continue  # reported by `damaged`
            self._rates[sound.samplerate] += 1
            self._durations.append(sound.duration)

    def finish(self) -> None:
        most_common = self._rates.most_common(1)
        self.given.setdefault("rate", min(MAX_RATE, most_common[0][0] if most_common else MAX_RATE))
        longest = float(np.quantile(self._durations, 0.95)) if self._durations else 1.0
        self.given.setdefault("seconds", round(min(MAX_SOUND_LENGTH, max(longest, 0.1)), 2))

    def _decode(self, file: Path | BinaryIO) -> np.ndarray:
        soundfile = _checks.extra("soundfile", "train")
        rate, samples = int(self.given["rate"]), self.shape[0]
        try:
            with soundfile.SoundFile(file) as sound:
                stored_rate = sound.samplerate
                frames = math.ceil(samples * stored_rate / rate)
                waveform = sound.read(frames, dtype="float32", always_2d=True).mean(1)
        except (OSError, RuntimeError) as error:
            raise ValueError(f"view {self.name!r} must be readable sounds, got {str(file)!r} ({error}).") from error
        if stored_rate != rate:
            step = math.gcd(stored_rate, rate)
            waveform = scipy.signal.resample_poly(waveform, rate // step, stored_rate // step)
        waveform = waveform[:samples].astype(np.float32)
        if self.processor.get("normalize") and len(waveform):
            waveform = (waveform - waveform.mean()) / np.sqrt(waveform.var() + 1e-7)
        return np.pad(waveform, (0, samples - len(waveform)))

    def _damaged_files(self, paths: Sequence[Path]) -> set[Path]:
        return damaged_sounds(paths)
