"""HTML page of a report; style, script and data are embedded, so that the page makes no external requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib import resources

from m3g.evaluation import METRICS
from m3g.evaluation.missing import Missing
from m3g.report.compare import NOTE, PAIRED, Measured, cell, comparison, differences, is_fraction
from m3g.report.facts import RunFacts

# Fields of the environment that are not listed: the command is shown above, and a shared page should not contain paths.
NOT_LISTED = ("command", "directory", "directory_from_run")
COUPLINGS = {"before": "with random weights", "after": "after training"}


def page(runs: Sequence[RunFacts]) -> str:
    """Return the HTML report of runs; user-supplied text is escaped here or set as `textContent` by the script."""
    files = resources.files("m3g.report") / "files"
    template, style, script = (
        (files / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    parts = []
    if len(runs) > 1:
        parts.append(_comparison(runs))
    parts += [_run(run, number) for number, run in enumerate(runs)]
    maps = [{**run.map, "views": run.views, "run": run.name} for run in runs]
    data = json.dumps(maps).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    title = escape(", ".join(run.name for run in runs))
    for mark, text in (
        ("STYLE", style),
        ("TITLE", title),
        ("BODY", "\n".join(parts)),
        ("DATA", data),
        ("SCRIPT", script),
    ):
        template = template.replace(f"<!--{mark}-->", text, 1)
    return template


def _comparison(runs: Sequence[Measured]) -> str:
    paired = differences(runs)
    text = f"<section><h2>Comparison</h2>{_table(*comparison(runs))}<p class=note>{escape(NOTE)}</p>"
    if paired[1]:
        text += f"<h3>Differences</h3>{_table(*paired)}<p class=note>{escape(PAIRED)}</p>"
    return text + "</section>"


def _run(run: RunFacts, number: int) -> str:
    references = {name: scores for name, scores in run.references.items() if scores}
    rows = [
        [
            name,
            cell(name, value, run.num_rows(name)),
            *(_plain(name, scores.get(name)) for scores in references.values()),
            METRICS.get(name, ""),
        ]
        for name, value in run.numbers.items()
        if value is not None
    ]
    matrices = "".join(
        f"<figure><figcaption>{escape(title)}{_chance(run, score)}</figcaption>"
        f"{_matrix(run.matrices[name], run.views, diagonal=name != 'recall_at_1')}</figure>"
        for name, title, score in (
            ("recall_at_1", "R@1, % (row: query view, column: searched view)", "recall_at_1"),
            ("transfer", "Moved probe, % (row: training view, column: test view)", "linear_transfer"),
        )
        if name in run.matrices
    )
    pair = " and ".join(map(str, run.views[:2]))
    couplings = "".join(
        f"<figure><figcaption>{escape(pair)}, {COUPLINGS[when]} (opacity: n times the pair marginal)</figcaption>"
        f"{_heat(values)}</figure>"
        for when, values in run.couplings.items()
        if values
    )
    curves = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{_curve(*xy)}</figure>" for name, xy in run.curves.items()
    )
    command = str(run.environment.get("command", ""))
    facts = [[str(name), json.dumps(value)] for name, value in run.environment.items() if name not in NOT_LISTED]
    return f"""<section><h2>{escape(run.name)}</h2>
<p>To repeat this run, use <code>{escape(command)}</code>, or save the settings below to a file and use
<code>m3g train --config FILE</code>.</p>
<details><summary>Settings</summary><pre>{escape(run.config)}</pre></details>
<details><summary>Environment</summary>{_table(["field", "value"], facts)}</details>
<h3>Curves</h3><div class=row>{curves}</div>
<h3>Scores on {run.num_test} test objects</h3>
<div class=numbers>{_table(["measure", "value [95 % CI]", *references, "meaning"], rows)}</div>
{_missing(run.missing)}
<h3>Between views</h3><div class=row>{matrices}</div>
<h3>Coupling of the first two views</h3><div class=row>{couplings}</div>
<h3>Map of the test objects</h3>
<div class=controls><label>Colour <select data-map={number}>
<option>label</option><option>view</option><option>error</option></select></label>
<label>Row <input data-map={number} inputmode=numeric size=6></label>
<label><input type=checkbox data-map={number}> Connect the views of every object</label></div>
<div class=map><canvas data-map={number} width=900 height=600></canvas><p class=tip role=status></p>
<ul class=legend></ul></div></section>"""


def _missing(scores: Missing) -> str:
    """Return the section on missing entries in test rows."""
    if not scores:
        return ""
    titles = {"linear": "probe", "linear_raw": "probe, raw", "recall_at_1": "R@1"}
    names = [name for name in titles if name in scores["curve"]]
    rows = [
        [f"{100 * (fraction or 0):.0f}", *(_plain("recall_", scores["curve"][name][i]) for name in names)]
        for i, fraction in enumerate(scores["curve"]["share"])
    ]
    rows.append(["chance", *(_plain("recall_", scores["chance"].get(name.removesuffix("_raw"))) for name in names)])
    return (
        "<h3>Missing views</h3>"
        + _table(["drop rate", *(titles[name] for name in names)], rows)
        + "<p class=note>Numbers are in percent. The drop rate is the probability with which each entry of a test row "
        "is dropped; every row keeps at least one view, so fewer entries are missing. The probe is trained on all "
        "present views of the training rows and tested on the remaining views; R@1 is the retrieval of each view by a "
        "query computed from the remaining other views.</p>"
    )


def _plain(name: str, value: float | None) -> str:
    if value is None:
        return "—"
    if not is_fraction(name):
        return f"{value:.3f}"
    if 0 < value < 1e-4:
        return "<0.01"
    return f"{100 * value:.1f}" if value == 0 or value >= 0.01 else f"{100 * value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{line}</tr></thead><tbody>{body}</tbody></table></div>"


def _chance(run: RunFacts, name: str) -> str:
    chance = run.references["chance"]
    return f"; chance is {100 * chance[name]:.3g}" if name in chance else ""


def _matrix(values: Sequence[Sequence[float]], names: Sequence[str], *, diagonal: bool) -> str:
    """Return a matrix between views as an HTML table; diagonal cells are empty unless `diagonal` is True."""
    head = "<th></th>" + "".join(f"<th>{escape(str(name))}</th>" for name in names)
    body = ""
    for l, (name, row) in enumerate(zip(names, values)):
        cells = "".join(
            f'<td style="--fraction:{value:.3f}">{100 * value:.0f}</td>'
            if diagonal or m != l
            else "<td class=none></td>"
            for m, value in enumerate(row)
        )
        body += f"<tr><th>{escape(str(name))}</th>{cells}</tr>"
    return f"<div class=wide><table class=matrix><tr>{head}</tr>{body}</table></div>"


def _heat(values: Sequence[Sequence[float]]) -> str:
    n = len(values)
    cells = "".join(
        f'<rect x="{j}" y="{i}" width="1" height="1" fill-opacity="{value:.3f}"/>'
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    )
    return f'<svg class=heat viewBox="0 0 {n} {n}" role=img aria-label="coupling"><g>{cells}</g></svg>'


def _curve(x: Sequence[float], y: Sequence[float]) -> str:
    low, high, left, right = min(0.0, *y), max(y), min(x), max(x)
    span, width = (high - low) or 1.0, (right - left) or 1.0
    points = " ".join(f"{40 + 250 * (a - left) / width:.1f},{110 - 100 * (b - low) / span:.1f}" for a, b in zip(x, y))
    dots = (
        "".join(f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3"/>' for p in points.split())
        if len(x) < 20
        else ""
    )
    return (
        f'<svg class=curve viewBox="0 0 300 135" role=img><path d="M40 10V110H290"/><polyline points="{points}"/>{dots}'
        f'<text x="36" y="16" text-anchor="end">{high:.2g}</text>'
        f'<text x="36" y="112" text-anchor="end">{low:.2g}</text>'
        f'<text x="40" y="128">step {left:g}</text><text x="290" y="128" text-anchor="end">{right:g}</text></svg>'
    )
