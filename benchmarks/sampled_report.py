"""Tables and plot of `python -m benchmarks sampled`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sampled_training import training_table


def reached(row: dict) -> bool | None:
    """Return whether an accuracy row meets its target; None if it has no target."""
    if row["epsilon"] == 0.02:
        return None
    relative = abs(row["error"]) / row["gap"]
    if row["epsilon"] == 0.2:
        return row["cosine"] >= 0.999 and relative <= 0.01
    cosine = 0.97 if row["noise"] == 0.3 else 0.99
    return row["cosine"] >= cosine and (relative <= 0.02 or abs(row["error"]) <= 0.002)


def ratio(report: dict, axis: str, small: int, big: int) -> float:
    seconds = {row[axis]: row["seconds"] for row in report["growth"] if row["axis"] == axis}
    return seconds[big] / seconds[small]


def tables(report: dict) -> str:
    big, machine = report["large"], report["large_machine"]
    lines = [
        "# The sampled solver",
        "",
        f"k = 12, n = 512, d = 128, forward and backward: {big['seconds']:.2f} s (target 5; "
        f"{big['processor_seconds']:.2f} s of processor time, load {machine['load']:.1f} on {machine['cores']} cores), "
        "peak of the process "
        f"{big['peak_bytes'] / 2**30:.2f} GiB (target 2); gap {big['gap']:.4f} ± {big['standard_error']:.4f}, cosine "
        f"between the gradients of two draws {big['cosine_between_draws']:.5f}.",
        "",
        f"Ratio of the times at k = 12 and k = 6: {ratio(report, 'k', 6, 12):.2f}; at n = 1024 and n = 512: "
        f"{ratio(report, 'n', 512, 1024):.2f} (target 2.4).",
        "",
        "| k | n | epsilon | noise | gap | error | standard error | cosine | gradient error (estimate) | target |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    verdicts = {True: "reached", False: "MISSED", None: "none"}
    for row in report["accuracy"]:
        lines.append(
            f"| {row['k']} | {row['n']} | {row['epsilon']} | {row['noise']} | {row['gap']:.5f} | {row['error']:+.5f} | "
            f"{row['standard_error']:.5f} | {row['cosine']:.5f} | {row['relative_gradient_error']:.3f} "
            f"({row['estimated_gradient_error']:.3f}) | {verdicts[reached(row)]} |"
        )
    lines += [
        "",
        "| k | n | epsilon | noise | draws | within two standard errors (target 90 %) "
        "| mean gradient error (estimate) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["coverage"]:
        lines.append(
            f"| {row['k']} | {row['n']} | {row['epsilon']} | {row['noise']} | {row['draws']} | "
            f"{row['within_two']:.1%} | {row['relative_gradient_error']:.3f} ({row['estimated_gradient_error']:.3f}) |"
        )
    lines += [
        "",
        "Many points, epsilon 0.05, noise 1, forward and backward:",
        "",
        "| k | n | rank | seconds | gap | gradient error (estimate) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["many_points"]:
        lines.append(
            f"| {row['k']} | {row['n']} | {row['rank']} | {row['seconds']:.2f} | {row['gap']:.5f} ± "
            f"{row['standard_error']:.5f} | {row['relative_gradient_error']:.3f} |"
        )
    return "\n".join(lines) + f"\n\n{training_table(report['training'])}"


def plot(report: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    cases = dict.fromkeys((row["k"], row["n"], row["noise"], row["epsilon"]) for row in report["ranks"])
    for k, n, noise, epsilon in cases:
        key = (k, n, noise, epsilon)
        rows = [row for row in report["ranks"] if (row["k"], row["n"], row["noise"], row["epsilon"]) == key]
        line = left.loglog(
            [row["rank"] for row in rows],
            [row["relative_gradient_error"] for row in rows],
            "o-",
            label=f"k={k} n={n} noise={noise} ε={epsilon}",
        )
        estimates = [row["estimated_gradient_error"] for row in rows]
        left.loglog([row["rank"] for row in rows], estimates, "--", color=line[0].get_color(), lw=1)
    left.set(xlabel="rank", ylabel="relative error of the gradient", title="error (dashed: estimate of the solver)")
    left.legend(fontsize=7)
    for axes, axis in ((middle, "k"), (right, "n")):
        rows = [row for row in report["growth"] if row["axis"] == axis]
        axes.loglog([row[axis] for row in rows], [row["seconds"] for row in rows], "o-", label="sampled")
        done = [row for row in rows if row["exact_seconds"] is not None]
        axes.loglog([row[axis] for row in done], [row["exact_seconds"] for row in done], "s-", label="exact")
        if 0 < len(done) < len(rows):
            last, next_one = done[-1], rows[len(done)]
            axes.annotate(
                f"{axis} = {next_one[axis]}: {next_one['exact_operations']:.0e} operations per step",
                (last[axis], last["exact_seconds"]),
                xytext=(8, -12),
                textcoords="offset points",
                fontsize=8,
            )
        fixed = "n = 256" if axis == "k" else "k = 4"
        axes.set(xlabel=axis, ylabel="seconds, forward and backward", title=f"time by {axis} ({fixed}, rank 4096)")
        axes.legend()
    for axes, name, part in ((left, "rank", "ranks"), (middle, "k", "growth"), (right, "n", "growth")):
        values = sorted({row[name] for row in report[part] if row.get("axis", name) == name})
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
    figure.savefig(path, dpi=130)
    plt.close(figure)
