"""The map of embeddings."""

import pytest
import torch

from evaluation.test_plots import size_of
from evaluation.test_report import points
from m3g.evaluation import map, plots
from m3g.evaluation.map import plot_map


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_a_map_shows_every_present_view_of_a_point(tmp_path, monkeypatch, labelled, masked):
    data = points(60, 0, masked=masked)
    drawn = []
    monkeypatch.setattr(map, "save", lambda figure, path: drawn.append(figure) or path)
    plot_map(data.embeddings, tmp_path, labels=data.labels if labelled else None, mask=data.mask, limit=90)
    (figure,) = drawn
    whole, *views = figure.axes
    assert [axis.get_title() for axis in views] == ["view 0", "view 1", "view 2"]
    rows = torch.linspace(0, 59, 30).long()
    present = torch.ones(3, 30) if data.mask is None else data.mask[:, rows]
    # behind each view's points all points are shown in grey
    assert [len(axis.collections[-1].get_offsets()) for axis in views] == present.sum(1).tolist()
    assert len(whole.collections[0].get_offsets()) == present.sum()
    (legend,) = figure.legends
    names = ["0", "1", "2"] if labelled else ["view 0", "view 1", "view 2"]
    assert [text.get_text() for text in legend.get_texts()] == names
    # lines from the middle of twelve objects to each of their views
    linked = torch.linspace(0, 29, 12).long()
    assert len(whole.lines) == sum(int(m) for m in present[:, linked].sum(0).tolist() if m > 1)


def test_a_map_places_similar_points_together(tmp_path):
    data = points(90, 0)
    places = map.tsne(data.embeddings[0].double())
    centres = torch.stack([places[data.labels == c].mean(0) for c in range(3)])
    assert (torch.cdist(places, centres).argmin(1) == data.labels).float().mean() > 0.8
    assert torch.equal(places, map.tsne(data.embeddings[0].double()))


@pytest.mark.parametrize("width", [1, 4])
def test_collapsed_embeddings_have_a_map_too(width):
    assert torch.isfinite(map.tsne(torch.ones(20, width))).all()


@pytest.mark.parametrize("classes", [21, 100])
def test_many_classes_are_labelled_in_the_map(tmp_path, monkeypatch, classes):
    drawn = []
    monkeypatch.setattr(map, "save", lambda figure, path: drawn.append(figure) or path)
    labels = torch.arange(2 * classes) % classes
    views = 5 * torch.randn(classes, 8, generator=torch.Generator().manual_seed(0))[labels].expand(2, -1, -1)
    names = [f"kind {c} with a long name" for c in range(classes)]
    plot_map(views, tmp_path, labels=labels, class_names=names)
    (figure,) = drawn
    assert figure.legends == []
    texts = figure.axes[0].texts
    assert len({text.get_text() for text in texts}) == min(classes, map.MAX_LABELS)
    assert all(len(text.get_text()) <= map.MAX_LABEL_LENGTH for text in texts)
    assert len(set(map.colours(classes))) == classes
    assert min(size_of(plots.save(figure, tmp_path / "map.png"))) > 300
