"""Job array for Slurm, in which each task executes one run and continues it after preemption."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from m3g.experiments.engine.spec import RunSpec
from m3g.experiments.engine.store import Store
from m3g.training.runs.files import write_text

MAX_CONCURRENT_TASKS = 64  # maximum number of tasks of an array that run at the same time
MAX_ARRAY_SIZE = 1000  # Slurm's default limit (MaxArraySize) is 1001


def write_scripts(
    specs: Sequence[RunSpec], store: Store, command: Sequence[str], *, nodes: int, gpus: int, hours: float
) -> list[Path]:
    """Write `slurm.sh`, and `submit.sh`, which submits `slurm.sh` for each stage; return both paths.

    The runs of a grid are in an earlier stage than the runs that use its best setting. `command` is `m3g reproduce
    NAME ...` without an action; the script adds `--run ID`. The ids of a stage are in files of at most `MAX_ARRAY_SIZE`
    lines. Each file is submitted as an array, whose task i executes line i. Slurm requeues a task that is preempted or
    whose node fails, and the task continues from its checkpoint, if there is one. Lightning's own requeueing would
    submit the task a second time, so it is disabled (`m3g.training.loop.trainer`).
    """
    stages: list[list[str]] = [[], [], []]
    for spec in specs:
        stages[bool(spec.candidates) + bool(spec.then)].append(spec.id)
    arrays: list[dict[str, int]] = []  # for each stage, the number of ids in each file
    for number, ids in enumerate(filter(None, stages)):
        parts = [ids[start : start + MAX_ARRAY_SIZE] for start in range(0, len(ids), MAX_ARRAY_SIZE)]
        names = [f"stage{number}.txt" if len(parts) == 1 else f"stage{number}-{i}.txt" for i in range(len(parts))]
        for name, part in zip(names, parts):
            write_text(store.path / name, "\n".join(part) + "\n")
        arrays.append({name: len(part) for name, part in zip(names, parts)})
    folder = store.path.resolve()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    script = store.path / "slurm.sh"
    write_text(script, _script(folder, command, nodes=nodes, gpus=gpus, hours=hours))
    submit = store.path / "submit.sh"
    write_text(submit, _submit(folder, arrays))
    for file in (script, submit):
        file.chmod(0o755)
    return [script, submit]


def _script(folder: Path, command: Sequence[str], *, nodes: int, gpus: int, hours: float) -> str:
    minutes = max(1, round(60 * hours))
    quoted = shlex.join(command)
    name = shlex.quote(folder.name)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=m3g-{name}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        *([f"#SBATCH --gpus-per-node={gpus}"] if gpus else []),
        f"#SBATCH --time={minutes}",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        f"#SBATCH --output={folder}/logs/%A_%a.txt",
        "# Usage: sbatch --array=1-COUNT slurm.sh FILE   (submit.sh does this for all files)",
        "set -euo pipefail",
        f"cd {shlex.quote(str(Path.cwd()))}",
        f'id=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {shlex.quote(str(folder))}/"$1")',
        'echo "task $SLURM_ARRAY_TASK_ID: run $id, attempt $((1 + ${SLURM_RESTART_COUNT:-0}))"',
    ]
    if nodes * max(gpus, 1) == 1:
        lines.append(f'exec {quoted} --run "$id"')
    else:
        # One torchrun per node. All connect to one port of the first node; the port is derived from the job id.
        program = shlex.join(command[1:]) if command[0] == sys.executable else quoted
        lines += [
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            "port=$((20000 + SLURM_JOB_ID % 20000))",
            f"exec srun {shlex.quote(sys.executable)} -m torch.distributed.run --nnodes {nodes} "
            f"--nproc-per-node {max(gpus, 1)} "
            f'--rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:$port" {program} --run "$id"',
        ]
    return "\n".join(lines) + "\n"


def _submit(folder: Path, arrays: Sequence[Mapping[str, int]]) -> str:
    lines = ["#!/bin/bash", "# Submit all stages; each starts after the previous one succeeded.", "set -euo pipefail"]
    lines.append("after=()  # expanded below in a form that old versions of bash accept for an empty list")
    script = shlex.quote(str(folder / "slurm.sh"))
    for files in arrays:
        lines.append("jobs=")
        for name, count in files.items():
            size = f"1-{count}%{MAX_CONCURRENT_TASKS}"
            lines.append(f'job=$(sbatch --parsable --array={size} ${{after[@]+"${{after[@]}}"}} {script} {name})')
            lines.append(f'echo "{name}: {count} runs, job $job"')
            lines.append('jobs="$jobs:${job%%;*}"')
        lines.append('after=(--dependency="afterok$jobs")')
    return "\n".join(lines) + "\n"
