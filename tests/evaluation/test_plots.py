"""Plots of curves and matrices."""

import errno

import pytest
import torch

from m3g.evaluation import plots
from m3g.evaluation.plots import plot_curves, plot_matrix


def size_of(path):
    from PIL import Image

    with Image.open(path) as image:
        return image.size


def test_pictures_are_written(tmp_path):
    curves = plot_curves({"loss": {"train": ([1, 2], [3.0, 2.0])}, "probe": {}}, tmp_path / "new" / "curves.png")
    matrix = plot_matrix(torch.rand(3, 3), ["a", "b", "c"], tmp_path / "matrix.png", title="Recall")
    ranks = plot_matrix(torch.ones(3, 3), ["a", "b", "c"], tmp_path / "rank.png", title="Rank", percent=False)
    for path in (curves, matrix, ranks):
        assert min(size_of(path)) > 300


def test_a_failed_write_keeps_the_old_picture(tmp_path, monkeypatch):
    path = plot_curves({"loss": {"train": ([1, 2], [3.0, 2.0])}}, tmp_path / "curves.png")
    before = path.read_bytes()

    def full(self, content):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError, match=r"curves\.png"):
        plot_curves({"loss": {"train": ([1, 2], [5.0, 2.0])}}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_matrix_shows_chance_and_omits_the_trivial_diagonal(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure) or path)
    matrix = torch.tensor([[1.0, 0.5], [0.25, 1.0]])
    plot_matrix(matrix, ["a", "b"], tmp_path, title="Recall", chance=0.02, diagonal=False)
    plot_matrix(matrix, ["a", "b"], tmp_path, title="Probe")
    without, whole = (figure.axes[0] for figure in drawn)
    assert [text.get_text() for text in without.texts] == ["50", "25"]
    assert without.get_title() == "Recall\nchance is 2 %"
    assert [text.get_text() for text in whole.texts] == ["100", "50", "25", "100"]
    assert bool((matrix.diagonal() == 1).all())  # the caller's numbers are not touched


def test_invalid_plots_are_errors(tmp_path):
    with pytest.raises(ValueError, match=r"matrix must have shape \(2, 2\)"):
        plot_matrix(torch.ones(3, 3), ["a", "b"], tmp_path / "m.png", title="")
    with pytest.raises(ValueError, match="at least one panel"):
        plot_curves({}, tmp_path / "c.png")
