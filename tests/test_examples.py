"""Every example runs quickly and prints what its page shows."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example as a program; return its output."""

    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return call


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


@pytest.mark.parametrize("n", [4, 6])
def test_free_points_end_at_the_true_matching(run, tmp_path, n):
    picture = tmp_path / "new" / "points.png"
    gaps = numbers(r"gap ([\d.]+)", run("free_points.py", "--n", n, "--out", picture))
    assert gaps[0] > 0.1
    assert gaps[-1] < 1e-3 * gaps[0]
    assert gaps == sorted(gaps, reverse=True)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_free_points_report_too_few_steps(run, tmp_path):
    with pytest.raises(SystemExit, match="not the best one after 1 steps"):
        run("free_points.py", "--steps", 1, "--out", tmp_path / "points.png")


def test_a_custom_loop_learns_to_retrieve_an_object_in_another_view(run):
    out = run("own_loop.py", "--epochs", 2)
    gaps, recall = numbers(r"gap ([\d.]+)", out), numbers(r"R@1 +([\d.]+)", out)
    assert gaps[1] < gaps[0]
    assert len(recall) == 3
    assert recall[0] < 2
    assert recall[2] > recall[1] > 5 * recall[0]


def test_a_mask_makes_incomplete_objects_usable(run):
    complete_only, masked = numbers(r"new objects: ([\d.]+)", run("missing_views.py", "--steps", 60))
    assert masked > 2 * complete_only


def test_a_third_view_improves_the_matching_of_two(run):
    two, three, chain_next, chain_end = numbers(r"(\d+)% of view", run("coupling.py", "--n", 48))
    assert two < three
    assert chain_next > chain_end > 100 / 48


@pytest.mark.slow
def test_only_losses_of_all_views_learn_the_sum_of_two_digits(run):
    out = run("digit_sum.py", "--steps", 600)
    by_pairs, by_product, by_rest = numbers(r"([\d.]+) %   \(", out)
    assert by_pairs < 20
    assert by_product > 70
    assert by_rest > 70


@pytest.mark.slow
def test_the_estimator_and_linear_cca_beat_chance(run):
    rows = [line.split() for line in run("estimator.py", "--epochs", 1).splitlines()[1:]]
    scores = [[float(value) for value in row[-3:]] for row in rows]
    assert len(scores) == 3
    assert all(all_views > 50 and recall > 100 / 400 for all_views, _, recall in scores)


@pytest.mark.slow
def test_no_thread_outlives_the_process_group(tmp_path):
    """Threads that are alive at shutdown release tensors without the GIL, which aborts the process."""
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]; import several_processes, threads\n"
        "several_processes.main(); assert not threads.group_threads(), threads.group_threads()"
    )
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    command = [sys.executable, "-c", script, EXAMPLES, Path(__file__).parent]
    completed = subprocess.run(command, env={**os.environ, **alone}, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.slow
def test_two_processes_compute_the_gap_of_one():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    completed = subprocess.run(
        [*command, EXAMPLES / "several_processes.py"], capture_output=True, text=True, timeout=300
    )
    assert completed.returncode == 0, completed.stderr
    one, two = numbers(r"gap ([\d.]+)", completed.stdout)
    assert one == two
    assert numbers(r"gradients (\S+)", completed.stdout)[0] < 1e-6


def test_every_example_is_short_and_tested():
    tested = set(re.findall(r'(?:run\(|EXAMPLES / )"(\w+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 100, path
