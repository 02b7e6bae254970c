"""Content of a report that is computed from the test objects."""

import pytest
import torch

from m3g.evaluation import Embedded
from m3g.report import facts


def embedded(k=3, n=6, *, mask=None, noise=0.0):
    random = torch.Generator().manual_seed(0)
    points = torch.eye(n).expand(k, n, n) + noise * torch.randn(k, n, n, generator=random)
    return Embedded(points, labels=torch.arange(n) % 2, index=torch.arange(n) + 10, mask=mask, class_names=["a", "b"])


def test_the_coupling_of_aligned_views_is_the_identity():
    assert torch.allclose(torch.tensor(facts._coupling(embedded())), torch.eye(6), atol=5e-3)
    assert not torch.allclose(torch.tensor(facts._coupling(embedded(noise=1.0))), torch.eye(6), atol=0.1)


def test_the_coupling_requires_two_complete_objects():
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[0, 1:] = False
    assert facts._coupling(embedded(mask=mask)) == []


def test_the_map_has_a_position_per_present_view():
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1, 2] = False
    map_facts = facts._map(embedded(mask=mask))
    assert map_facts["rows"] == [10, 11, 12, 13, 14, 15]
    assert map_facts["labels"] == ["a", "b"] * 3
    assert [[position is None for position in view] for view in map_facts["places"]] == (~mask).tolist()
    assert all(0 <= value <= 1 for view in map_facts["places"] for position in view if position for value in position)
    assert map_facts["errors"] == [0.0] * 6
    assert min(facts._map(embedded(noise=1.0))["errors"]) > 0.05


def test_a_map_of_at_most_three_points_has_no_positions():
    assert facts._map(embedded(k=3, n=1))["places"] == [[None]] * 3


def test_curves_are_read_from_the_tables_of_a_run(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25\n")
    (tmp_path / "probes.csv").write_text("step,knn_mean\n2,0.75\n")
    assert facts.logged(facts.Run(tmp_path)) == {"loss": ([1.0, 2.0], [0.5, 0.25]), "knn_mean": ([2.0], [0.75])}
    assert facts.logged(facts.Run(tmp_path / "none")) == {}


def test_unevaluated_runs_are_refused(tmp_path, monkeypatch):
    run = facts.Run(tmp_path)
    monkeypatch.setattr(facts.Run, "of", lambda path: run)
    monkeypatch.setattr(run, "open", lambda: None)
    for content, message in (
        (None, "run must have been evaluated"),
        ('{"numbers": {}}', "has no entry 'matrices'"),
        ('{"numbers": 1}', "is not a valid results file"),
    ):
        if content is not None:
            run.results.write_text(content)
        with pytest.raises(ValueError, match=message):
            facts.read_results(tmp_path)
