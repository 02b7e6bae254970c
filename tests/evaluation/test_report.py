import pytest
import torch

import m3g
from m3g.evaluation import METRICS, Embedded, evaluate, map, plots, read_out
from m3g.evaluation.map import plot_map
from m3g.evaluation.plots import plot_curves, plot_matrix


def points(n, seed, *, masked=False):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centre = 2 * torch.eye(8)[labels] + torch.randn(n, 8, generator=random)
    embeddings = centre + 0.3 * torch.randn(3, n, 8, generator=random)
    features = [torch.randn(n, width, generator=random) for width in (2, 3, 4)]
    mask = None
    if masked:
        mask = torch.rand(3, n, generator=random) > 0.2
        mask[0] = True
        embeddings = torch.where(mask[..., None], embeddings, 0.0)
    return Embedded(embeddings, features, labels, mask)


@pytest.mark.parametrize("masked", [False, True])
def test_everything_at_once(masked):
    report = evaluate(points(150, 0, masked=masked), points(96, 1, masked=masked), paper_probe=True)
    assert list(report.numbers) == [
        name for name in METRICS if not name.startswith(("few_shot", "linear_held_out", "linear_query"))
    ]
    assert all(torch.isfinite(torch.tensor(value)) for value in report.numbers.values())
    assert all(type(value) is float for value in report.numbers.values())
    assert set(report.matrices) == {"transfer", "recall_at_1", "recall_at_5", "recall_at_10", "median_rank"}
    assert all(matrix.shape == (3, 3) for matrix in report.matrices.values())
    assert report.numbers["linear_mean"] > 0.8
    assert report.numbers["linear_concat"] < 0.6  # the features are noise
    assert report.numbers["recall_at_1"] <= report.numbers["recall_at_5"] <= report.numbers["recall_at_10"]


def test_few_shot_probes_are_those_that_the_rows_allow():
    train, test = points(330, 0), points(60, 1)
    features = list(train.embeddings), list(test.embeddings)
    report = evaluate(
        Embedded(features=features[0], labels=train.labels),
        Embedded(features=features[1], labels=test.labels),
        few_shot=True,
    )
    assert list(report.numbers) == ["linear_concat", "few_shot_10", "few_shot_50"]
    assert report.numbers["few_shot_50"] > 0.8


def test_parts_that_are_not_there_are_left_out():
    train, test = points(90, 0), points(60, 1)
    unlabelled = evaluate(Embedded(train.embeddings), Embedded(test.embeddings), polymatching=False)
    assert not any(name.startswith(("linear", "knn", "poly")) for name in unlabelled.numbers)
    raw = evaluate(
        Embedded(features=train.features, labels=train.labels),
        Embedded(features=test.features, labels=test.labels),
    )
    assert list(raw.numbers) == ["linear_concat"]
    with pytest.raises(ValueError, match="got neither"):
        evaluate(Embedded(), Embedded())


def test_the_mean_readout_counts_present_views_only():
    views = torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]]])
    assert torch.allclose(read_out(views), torch.tensor([[0.5, 0.5]]))
    mask = torch.tensor([[True], [False]])
    assert torch.allclose(read_out(views, mask), torch.tensor([[1.0, 0.0]]))


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


def test_a_map_puts_alike_points_together(tmp_path):
    data = points(90, 0)
    places = map.tsne(data.embeddings[0].double())
    centres = torch.stack([places[data.labels == c].mean(0) for c in range(3)])
    assert (torch.cdist(places, centres).argmin(1) == data.labels).float().mean() > 0.8
    assert torch.equal(places, map.tsne(data.embeddings[0].double()))


@pytest.mark.parametrize("width", [1, 4])
def test_collapsed_embeddings_have_a_map_too(width):
    assert torch.isfinite(map.tsne(torch.ones(20, width))).all()


@pytest.mark.parametrize("classes", [21, 100])
def test_the_names_of_many_classes_stand_in_the_map(tmp_path, monkeypatch, classes):
    drawn = []
    monkeypatch.setattr(map, "save", lambda figure, path: drawn.append(figure) or path)
    labels = torch.arange(2 * classes) % classes
    views = 5 * torch.randn(classes, 8, generator=torch.Generator().manual_seed(0))[labels].expand(2, -1, -1)
    names = [f"kind {c} with a long name" for c in range(classes)]
    plot_map(views, tmp_path, labels=labels, class_names=names)
    (figure,) = drawn
    assert figure.legends == []
    texts = figure.axes[0].texts
    assert len({text.get_text() for text in texts}) == min(classes, map.MOST_NAMES)
    assert all(len(text.get_text()) <= map.LONGEST for text in texts)
    assert len(set(map.colours(classes))) == classes
    assert min(size_of(plots.save(figure, tmp_path / "map.png"))) > 300


def test_a_matrix_tells_chance_and_leaves_out_what_is_trivial(tmp_path, monkeypatch):
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


def test_wrong_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"matrix must have shape \(2, 2\)"):
        plot_matrix(torch.ones(3, 3), ["a", "b"], tmp_path / "m.png", title="")
    with pytest.raises(ValueError, match="at least one panel"):
        plot_curves({}, tmp_path / "c.png")


def test_a_cost_reads_out_what_it_was_trained_for():
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn(2, 60, 16, generator=generator).sign()
    points = Embedded(embeddings=torch.stack([*signs, signs.prod(0)]), labels=torch.arange(60) % 3)
    by_mean = evaluate(points, points, polymatching=False)
    by_query = evaluate(points, points, polymatching=False, readout=m3g.MultilinearProduct())
    assert by_mean.numbers["recall_from_others"] < 0.2
    assert by_query.numbers["recall_from_others"] == 1
    assert by_query.numbers["linear_mean"] == by_mean.numbers["linear_mean"]
    assert "linear_query" in by_query.numbers
    assert "linear_query" not in by_mean.numbers
    assert set(by_query.chance) == set(by_query.numbers)
