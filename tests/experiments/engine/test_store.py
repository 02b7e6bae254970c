"""Storage of finished runs."""

import json

import pytest

from m3g.experiments.engine.store import Store


def save(store, run):
    with store.claim(run):
        store.save(run, {"id": run, "metrics": {}})


def test_results_are_collected_in_one_order(tmp_path):
    store = Store(tmp_path)
    for run in ("b", "a"):
        save(store, run)
    assert list(store.collect()) == ["a", "b"]
    assert [json.loads(line)["id"] for line in store.table.read_text().splitlines()] == ["a", "b"]
    save(store, "c")
    assert store.finished("c")
    assert not store.finished("d")
    assert set(Store(tmp_path).results()) == {"a", "b", "c"}


def test_a_success_removes_the_error(tmp_path):
    store = Store(tmp_path)
    with store.claim("a"):
        store.failed("a", "no luck")
    assert store.errors() == {"a": "no luck"}
    save(store, "a")
    assert store.errors() == {}


def test_a_claim_is_released_after_an_error(tmp_path):
    store = Store(tmp_path)

    def fail():
        with store.claim("a") as mine, Store(tmp_path).claim("a") as other:
            raise RuntimeError(f"{mine} {other}")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="True False"):
            fail()
