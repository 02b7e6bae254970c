"""A run: its id and its settings."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3g.experiments.engine.registry import NAMES, find
from m3g.experiments.engine.spec import Candidate, Request, RunSpec

CONTENT = st.dictionaries(
    st.text(min_size=1), st.integers() | st.floats(allow_nan=False, allow_infinity=False), max_size=4
)


@given(CONTENT, st.randoms())
def test_an_id_follows_from_content_alone(settings, random):
    items = list(settings.items())
    random.shuffle(items)
    one = RunSpec("e", {"config": settings}, {"arm": "a"})
    assert RunSpec("e", {"config": dict(items)}, {"arm": "b"}).id == one.id
    assert RunSpec("e", {"config": {**settings, "new": 1}}, {"arm": "a"}).id != one.id
    assert RunSpec("other", {"config": settings}, {"arm": "a"}).id != one.id


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_of_a_planned_run_cannot_be_changed(name):
    spec = find(name).specs(Request(seeds=1))[0]
    with pytest.raises(TypeError, match="cannot be changed"):
        spec.settings["new"] = 1
    for part in spec.settings.values():
        if isinstance(part, dict):
            with pytest.raises(TypeError, match="cannot be changed"):
                part.update(seed=5)
    changed = spec.with_changes({"new": 1}, arm="other")
    assert changed.labels["arm"] == "other"
    assert changed.id != spec.id
    assert pickle.loads(pickle.dumps(spec)).id == spec.id


@pytest.mark.parametrize(("scores", "expected"), [((1, 1, 1, 0.5), 2), ((0.2, 1, 1, 0), 2), ((0, 0.1, 0.3, 0.2), 4)])
def test_the_middle_of_equally_good_settings_is_used(scores: tuple[float, ...], expected: float) -> None:
    tried = [RunSpec("demo", {"config": {"seed": index}}, {}) for index in range(len(scores))]
    candidates = tuple(Candidate({"value": 2.0**index}, [run.id]) for index, run in enumerate(tried))
    final = RunSpec("demo", {"config": {}}, {}, candidates)
    results = {
        run.id: {
            "id": run.id, "experiment": "demo", "labels": {}, "settings": {}, "chosen": None,
            "metrics": {"validation": score}, "seconds": 1.0,
        }
        for run, score in zip(tried, scores, strict=True)
    }  # fmt: skip
    assert final.choose(results) == {"value": expected}
