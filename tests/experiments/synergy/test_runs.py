import pytest

from experiments.miniature import small_runs
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.synergy.runs import ARMS, TEMPERATURES, UNTUNED_OF, demo


def test_every_loss_has_the_same_grid():
    specs = find("synergy").specs(Request(sets=["digits"]))
    for arm in ARMS:
        mine = [spec for spec in specs if spec.labels["arm"] == arm]
        assert sorted(
            spec.labels["loss_options.temperature"] for spec in mine if spec.labels["stage"] == "grid"
        ) == list(TEMPERATURES)
        tests = [spec for spec in mine if spec.labels["stage"] == "test"]
        assert len(tests) == 5
        assert all(len(spec.candidates) == len(TEMPERATURES) for spec in tests)


def test_a_set_alone_keeps_the_grid_of_its_family():
    specs = find("synergy").specs(Request(sets=["bits-100"], methods=["symile"]))
    ids = {spec.id for spec in specs}
    assert all(set(spec.needs) <= ids for spec in specs)


@pytest.mark.slow
def test_runs_of_the_built_in_digits_become_a_table(tmp_path):
    arms = ["m3g, product", "infonce-ave"]
    text, specs = small_runs("synergy", None, tmp_path, methods=arms, keep=lambda spec: spec.labels["data"] == "digits")
    assert len(specs) == len(arms) * (len(TEMPERATURES) + 1) + len(set(arms) & set(UNTUNED_OF))
    assert "m3g, product" in text
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith(f"{len(specs)} runs")


def test_demo_returns_one_accuracy_per_loss(tmp_path):
    shares = demo(tmp_path, steps=2)
    assert len(shares) == 5
    assert all(0 <= share <= 1 for share in shares.values())
