"""Job arrays, with a fake `sbatch`, and on a real cluster of one node if Slurm is installed."""

import json
import os
import shutil
import stat
import subprocess
import time

import pytest

from experiments.miniature import write_sets
from m3g.cli import main
from m3g.experiments.engine.slurm import write_scripts
from m3g.experiments.engine.spec import Candidate, RunSpec
from m3g.experiments.engine.store import Store

# Execute the array, with at most three attempts per task.
FAKE_SBATCH = """#!/bin/bash
set -eu
for word in "$@"; do case $word in --array=*) range=${word#--array=1-}; count=${range%%%*};; esac; done
script=${@: -2:1}; file=${@: -1}
echo "$@" >> "$SBATCH_LOG"
for task in $(seq $count); do
  restarts=0
  export SLURM_ARRAY_TASK_ID=$task SLURM_JOB_ID=7
  until SLURM_RESTART_COUNT=$restarts bash "$script" "$file" >> "$SBATCH_LOG" 2>&1; do
    restarts=$((restarts + 1)); [ $restarts -lt 3 ]
  done
done
echo "$((100 + count))"
"""


@pytest.fixture
def fake_sbatch(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(FAKE_SBATCH)
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.mark.slow
def test_the_array_executes_every_run_once(tmp_path, fake_sbatch, capsys):
    out = str(tmp_path / "out")
    command = ["reproduce", "iterations", "--out", out, "--seeds", "1", "--methods", "factored"]
    assert main([*command, "--slurm"]) == 0
    assert "submit      bash" in capsys.readouterr().out
    # two tasks are sufficient to test the array
    listed = tmp_path / "out" / "stage0.txt"
    kept = listed.read_text().splitlines()[:2]
    submit = tmp_path / "out" / "submit.sh"
    submit.write_text(submit.read_text().replace("1-15%64", "1-2%64"))
    subprocess.run(["bash", submit], check=True, timeout=300)
    assert set(Store(out).results()) == set(kept)
    assert f"run {kept[1]}, attempt 1" in fake_sbatch.read_text()
    assert main([*command, "--slurm"]) == 0  # finished runs are omitted from the next array
    assert len(listed.read_text().splitlines()) == 13


def test_a_stage_waits_for_the_grid_and_a_task_may_be_several_nodes(tmp_path, capsys):
    sets = tmp_path / "sets"
    sets.mkdir()
    write_sets(sets)
    out = tmp_path / "out"
    options = [
        "--out",
        str(out),
        "--data",
        str(sets),
        "--seeds",
        "1",
        "--methods",
        "m3g",
        "--nodes",
        "4",
        "--gpus",
        "8",
    ]
    assert main(["reproduce", "domainnet", "--slurm", *options]) == 0
    submit, script = (out / "submit.sh").read_text(), (out / "slurm.sh").read_text()
    assert submit.index("stage0.txt") < submit.index("afterok") < submit.index("stage1.txt")
    # Temperatures, learning rates with the best of them, and runs with the best of both.
    stages = [set((out / f"stage{i}.txt").read_text().split()) for i in range(3)]
    needs = {row["id"]: row["needs"] for row in json.loads((out / "plan.json").read_text())}
    assert set.union(*stages) == set(needs)
    assert sum(map(len, stages)) == len(needs)
    for i, stage in enumerate(stages):
        assert all(set(needs[run]) <= set().union(*stages[:i]) for run in stage)
    assert "#SBATCH --requeue" in script
    assert "srun" in script
    assert "--nnodes 4 --nproc-per-node 8" in script
    assert "--keep" not in script
    for file in ("submit.sh", "slurm.sh"):
        assert (out / file).stat().st_mode & stat.S_IXUSR
        subprocess.run(["bash", "-n", out / file], check=True)
    assert main(["reproduce", "domainnet", "--slurm", *options[:-1], "-1"]) == 2


def test_keep_applies_to_the_tasks_of_the_array(tmp_path):
    options = ["--out", str(tmp_path / "out"), "--seeds", "1", "--methods", "factored", "--keep"]
    assert main(["reproduce", "iterations", "--slurm", *options]) == 0
    assert "--keep --run" in (tmp_path / "out" / "slurm.sh").read_text()


def test_a_stage_of_more_runs_than_the_limit_is_several_arrays(tmp_path, monkeypatch):
    """The next stage waits for all of them."""
    monkeypatch.setattr("m3g.experiments.engine.slurm.MAX_ARRAY_SIZE", 2)
    tried = [RunSpec("demo", {"config": {"seed": seed}}, {}) for seed in range(5)]
    chosen = RunSpec("demo", {"config": {}}, {}, (Candidate({}, [spec.id for spec in tried]),))
    store = Store(tmp_path / "out")
    store.path.mkdir()
    _, submit = write_scripts([*tried, chosen], store, ["true"], nodes=1, gpus=0, hours=0.1)
    files = [store.path / name for name in ("stage0-0.txt", "stage0-1.txt", "stage0-2.txt", "stage1.txt")]
    assert "".join(file.read_text() for file in files).split() == [spec.id for spec in (*tried, chosen)]
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/submitted\nwc -l < {tmp_path}/submitted\n')
    sbatch.chmod(0o755)
    path = f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", submit], check=True, env={**os.environ, "PATH": path}, timeout=120)
    *first, last = (tmp_path / "submitted").read_text().splitlines()
    assert [line.split("--array=")[1].split("%")[0] for line in first] == ["1-2", "1-2", "1-1"]
    assert not any("--dependency" in line for line in first)
    assert "--dependency=afterok:1:2:3 " in last


def _cluster():
    """Return why no cluster is available for the test, or None."""
    if shutil.which("sbatch") is None:
        return "Slurm is not installed; `.ci/slurm start` makes a cluster of one node on Debian"
    nodes = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, timeout=120)
    return (
        None if "idle" in nodes.stdout or "mixed" in nodes.stdout else f"no node is idle: {nodes.stdout}{nodes.stderr}"
    )


@pytest.mark.slow
def test_a_task_that_is_requeued_half_way_continues(tmp_path):
    """On a real cluster, a task is requeued while its first attempt sleeps; the second continues from its files."""
    reason = _cluster()
    if reason is not None:
        pytest.skip(reason)
    specs = [RunSpec("demo", {"config": {"seed": seed}}, {}) for seed in (0, 1)]
    requeued, other = (spec.id for spec in specs)
    program = tmp_path / "program.sh"
    program.write_text(
        "#!/bin/bash\n# $1 --run, $2 the id\n"
        f"cd {tmp_path}\n"
        f'if [ "$2" = {other} ] || [ -e "half-$2" ]; then touch "done-$2"; else touch "half-$2"; sleep 300; fi\n'
    )
    program.chmod(0o755)
    store = Store(tmp_path / "out")
    store.path.mkdir()
    _, submit = write_scripts(specs, store, [str(program)], nodes=1, gpus=0, hours=0.1)
    text = subprocess.run(["bash", submit], check=True, capture_output=True, text=True, timeout=120).stdout
    job = text.split("job ")[1].split()[0]
    try:
        _wait(lambda: (tmp_path / f"half-{requeued}").exists())
        subprocess.run(["scontrol", "requeue", f"{job}_1"], check=True, timeout=120)
        _wait(lambda: (tmp_path / f"done-{requeued}").exists())
        log = next((tmp_path / "out" / "logs").glob("*_1.txt")).read_text()
        assert "attempt 1" in log
        assert "attempt 2" in log
    finally:
        subprocess.run(["scancel", job], check=False, timeout=120)


def _wait(holds, *, seconds=240):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the cluster did not reach the state in time"
        time.sleep(0.5)
