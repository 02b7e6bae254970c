"""The pool: choices on validation, claims, killed workers, two collectors at once."""

import dataclasses
import json
import multiprocessing
import subprocess
import sys
import threading
import time

import pytest

from m3g.experiments.engine.plan import planned
from m3g.experiments.engine.pool import do_all, do_run, run_pool
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Candidate, Experiment, OnlyTrained, Request, RunSpec
from m3g.experiments.engine.store import Store


def test_other_processes_of_a_torchrun_launch_only_train(tmp_path, monkeypatch):
    def trains(settings, folder, data):
        raise OnlyTrained

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    store = Store(tmp_path)
    assert do_run(experiment(trains), RunSpec("test", {"config": {}}, {}), store, tmp_path) == "done"
    assert store.results() == {}


def experiment(work):
    return Experiment("test", lambda request: [], work, lambda results, folder: "")


def grid_and_test():
    tried = [RunSpec("test", {"config": {"value": v}}, {}) for v in (1, 2, 3)]
    candidates = tuple(Candidate({"value": v}, [run.id]) for v, run in zip((1, 2, 3), tried))
    return tried, RunSpec("test", {"config": {}, "final": True}, {}, candidates)


def work(settings, folder, data):
    value = settings["config"]["value"]
    return {"validation": -abs(value - 2), "test": value}


def test_a_run_waits_for_and_uses_the_best_setting_on_validation(tmp_path):
    tried, final = grid_and_test()
    store = Store(tmp_path)
    assert do_run(experiment(work), final, store, tmp_path) == "waiting"
    assert do_all(experiment(work), [final, *tried], store, tmp_path, pause=0.01) == {}
    result = store.results()[final.id]
    assert result["chosen"] == {"value": 2}
    assert result["metrics"]["test"] == 2
    assert do_run(experiment(work), final, store, tmp_path) == "finished"


def test_no_run_is_repeated_if_a_larger_grid_selects_the_same_setting(tmp_path):
    executed = []

    def counted(settings, folder, data):
        executed.append(settings)
        return work(settings, folder, data)

    tried, final = grid_and_test()
    smaller = dataclasses.replace(final, candidates=final.candidates[:2])
    store = Store(tmp_path)
    do_all(experiment(counted), [*tried, smaller], store, tmp_path, pause=0.01)
    assert len(executed) == 4
    assert do_run(experiment(counted), final, store, tmp_path) == "done"
    assert len(executed) == 4
    ours, earlier = (store.results()[spec.id] for spec in (final, smaller))
    assert final.id != smaller.id
    assert (ours["metrics"], ours["seconds"]) == (earlier["metrics"], earlier["seconds"])
    other = dataclasses.replace(final, settings={"config": {"seed": 1}, "final": True})
    do_run(experiment(counted), other, store, tmp_path)
    assert len(executed) == 5


@pytest.mark.parametrize(("gain", "batch"), [(1, 64), (-1, None)])
def test_a_second_grid_extends_the_first_choice_only_if_it_is_better(tmp_path, gain, batch):
    def scored(settings, folder, data):
        metrics = work(settings, folder, data)
        larger = settings["config"].get("batch", 32) == 64
        return {**metrics, "validation": metrics["validation"] + gain * larger}

    tried, final = grid_and_test()
    second = dataclasses.replace(final, settings={"config": {"batch": 64}})
    final = dataclasses.replace(final, then=(Candidate({"batch": 64}, [second.id]),))
    store = Store(tmp_path)
    assert do_run(experiment(scored), second, store, tmp_path) == "waiting"
    assert do_all(experiment(scored), [final, second, *tried], store, tmp_path, pause=0.01) == {}
    results = store.results()
    assert results[second.id]["chosen"] == {"value": 2}
    assert results[final.id]["chosen"] == {"value": 2} | ({} if batch is None else {"batch": batch})


def test_tables_hold_only_runs_of_the_plan(tmp_path):
    def plan(request):
        return [RunSpec("test", {"config": {"value": s}}, {"seed": s}) for s in range(request.seeds)]

    test = dataclasses.replace(experiment(work), runs=plan, seeds={"laptop": 2})
    store = Store(tmp_path)
    older = RunSpec("test", {"config": {"value": -1}}, {"seed": 0})
    do_all(test, [*plan(Request(seeds=3)), older], store, tmp_path)
    do_all(test, [dataclasses.replace(plan(Request(seeds=4))[3], labels={"seed": 3, "arm": "old"})], store, tmp_path)
    kept = planned(test, list(store.results().values()), Request())
    # Seeds beyond the default are included. The labels are those of the plan.
    assert sorted((row["labels"] for row in kept), key=lambda labels: labels["seed"]) == [{"seed": s} for s in range(4)]
    assert older.id not in {row["id"] for row in kept}


def test_a_run_that_fails_is_reported_and_retried_later(tmp_path):
    def failing(settings, folder, data):
        raise RuntimeError("no luck")

    spec = RunSpec("test", {"config": {"value": 1}}, {})
    store = Store(tmp_path)
    assert "no luck" in do_all(experiment(failing), [spec], store, tmp_path)[spec.id]
    assert list(store.errors()) == [spec.id]
    assert do_all(experiment(work), [spec], store, tmp_path) == {}
    assert store.errors() == {}


def test_a_run_is_executed_by_one_process_at_a_time(tmp_path):
    spec = RunSpec("test", {"config": {"value": 1}}, {})
    store = Store(tmp_path)
    with store.claim(spec.id) as mine:
        assert mine
        assert do_run(experiment(work), spec, store, tmp_path) == "busy"
    assert do_run(experiment(work), spec, store, tmp_path) == "done"


def test_collected_results_count_as_finished(tmp_path):
    spec = RunSpec("test", {"config": {"value": 1}}, {})
    do_run(experiment(work), spec, Store(tmp_path / "a"), tmp_path)
    Store(tmp_path / "a").collect()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "results.jsonl").write_bytes((tmp_path / "a" / "results.jsonl").read_bytes())
    assert do_run(experiment(work), spec, Store(tmp_path / "b"), tmp_path) == "finished"


@pytest.mark.slow
def test_workers_killed_at_random_are_replaced_and_nothing_is_lost_or_repeated(tmp_path):
    iterations = find("iterations")
    specs = iterations.specs(Request(seeds=4, miniature=True))
    store = Store(tmp_path)
    killed = []

    def kill():
        while len(killed) < 3 and len(store.results()) < len(specs):
            time.sleep(0.05)
            children = multiprocessing.active_children()
            if store.results() and children:
                children[len(killed) % len(children)].kill()  # no error if it has just ended
                killed.append(len(store.results()))
                time.sleep(1)

    thread = threading.Thread(target=kill)
    thread.start()
    errors = run_pool(iterations, specs, store, tmp_path, jobs=2, report=lambda line: None)
    thread.join()
    assert killed
    assert not errors
    assert set(store.results()) == {spec.id for spec in specs}
    stamps = {spec.id: (store.folder(spec.id) / "result.json").stat().st_mtime_ns for spec in specs}
    run_pool(iterations, specs, store, tmp_path, jobs=1, report=lambda line: None)
    assert stamps == {spec.id: (store.folder(spec.id) / "result.json").stat().st_mtime_ns for spec in specs}


@pytest.mark.slow
def test_a_pool_reports_a_run_that_fails_again(tmp_path):
    iterations, store = find("iterations"), Store(tmp_path)
    spec = iterations.specs(Request(miniature=True))[0].with_changes({"solver": "unknown"})
    assert list(do_all(iterations, [spec], store, tmp_path)) == [spec.id]
    assert "solver" in run_pool(iterations, [spec], store, tmp_path, jobs=2, report=lambda line: None)[spec.id]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_workers_end_when_their_parent_is_killed():
    """The worker shares the output of its parent, whose end is read only after both have ended."""
    program = """
import multiprocessing, time
from m3g.experiments.engine.pool import end_with_parent

def work():
    end_with_parent()
    print("ready", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    assert parent.communicate(timeout=300)[0] == ""


def test_two_concurrent_collectors_write_a_complete_table(tmp_path):
    store = Store(tmp_path)
    specs = [RunSpec("test", {"config": {"value": v}}, {}) for v in range(30)]
    program = f"from m3g.experiments.engine.store import Store\nfor _ in range(20): Store({str(tmp_path)!r}).collect()"
    collectors = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    for spec in specs:
        do_run(experiment(work), spec, store, tmp_path)
        time.sleep(0.02)
    assert [collector.wait(300) for collector in collectors] == [0, 0]
    assert set(store.collect()) == {spec.id for spec in specs}
    lines = store.table.read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(spec.id for spec in specs)
