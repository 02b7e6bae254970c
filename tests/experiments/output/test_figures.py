"""Figures of the experiments."""

import pytest

from m3g.experiments.output import figures
from pictures import colours


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    kept, save = [], figures.save
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure) or save(figure, path))
    return kept


def test_intervals_of_percentages_end_at_their_bounds(drawn, tmp_path):
    line = {2: (99.0, 3.0), 3: (50.0, 1.0)}
    for label, top in (("accuracy, %", 100.0), ("steps", 102.0)):
        figures.curves({"a": line}, tmp_path / "curves", xlabel="views k", ylabel=label)
        band = drawn[-1].axes[0].collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == pytest.approx(top)
    assert colours(tmp_path / "curves.png") >= 2
    assert (tmp_path / "curves.svg").read_text().count("<svg") == 1


def test_values_of_different_magnitude_have_a_logarithmic_axis(drawn, tmp_path):
    for values, scale in (((1.0, 100.0), "log"), ((1.0, 2.0), "linear")):
        line = dict(zip((0.1, 1.0), ((value, 0.0) for value in values)))
        figures.curves({"a": line}, tmp_path / "curves", xlabel="epsilon", ylabel="steps", logarithmic=True)
        axis = drawn[-1].axes[0]
        assert (axis.get_xscale(), axis.get_yscale()) == ("log", scale)
        assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0.1", "1"]


def test_every_arm_of_a_group_has_a_point(drawn, tmp_path):
    figures.points(
        {"x": {"a": (50.0, 1.0), "b": (40.0, 1.0)}, "y": {"b": (30.0, 1.0)}}, tmp_path / "points", ylabel="%"
    )
    lines = [container.lines[0] for container in drawn[-1].axes[0].containers]
    assert [list(line.get_ydata()) for line in lines] == [[50.0], [40.0, 30.0]]


def test_empty_cells_of_a_map_stay_empty(drawn, tmp_path):
    maps = {"a": [[None, 10.0], [90.0, None]]}
    figures.heat_maps(maps, ["x", "y"], tmp_path / "maps", rows="trained on", columns="tested on")
    assert sorted(text.get_text() for text in drawn[-1].axes[0].texts) == ["10", "90"]
