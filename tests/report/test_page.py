"""The page of a report, also in a real browser."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from m3g.report import RunFacts, page

EVIL = "<img src=x onerror=\"document.body.dataset.evil='1'\">"
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=3000",
]  # fmt: skip


def facts(name="first", *, labels=True, label=EVIL):
    return RunFacts(
        name=name,
        config=f"loss: m3g # {EVIL}</pre><script>alert(1)</script>",
        environment={"command": f"m3g train {EVIL}", "git": EVIL},
        numbers={"linear_mean": 0.9, "recall_at_1": 0.5, "alignment": 0.4},
        matrices={"recall_at_1": [[1.0, 0.5], [0.4, 1.0]], "transfer": [[0.9, 0.8], [0.7, 0.9]]},
        views=["left", EVIL],
        curves={"loss": ([1.0, 2.0, 3.0], [0.5, 0.2, 0.1]), "linear_mean": ([3.0], [0.9])},
        references={
            "linear CCA": {"linear_mean": 0.92},
            "raw": {"linear_mean": 0.95},
            "chance": {"linear_mean": 0.5, "recall_at_1": 0.02},
        },
        couplings={"before": [[0.5, 0.5], [0.5, 0.5]], "after": [[1.0, 0.0], [0.0, 1.0]]},
        map={
            "rows": [4, 9],
            "labels": [label, "</script><script>alert(2)</script>"] if labels else None,
            "errors": [0.1, 0.7],
            "places": [[[0.25, 0.25], [1.0, 1.0]], [[0.3, 0.5], None]],
        },
        num_test=50,
        num_train=175,
        missing={
            "curve": {"share": [0.0, 0.5], "linear": [0.9, 0.8], "linear_raw": [0.95, None], "recall_at_1": [0.5, 0.4]},
            "chance": {"linear": 0.5, "recall_at_1": 1e-6},
            "subsets": [],
        },
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.links = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "action")]


def test_scores_with_missing_views_have_a_table():
    table = page([facts()]).partition("<h3>Missing views</h3>")[2].partition("</table>")[0]
    assert "<th>drop rate</th>" in table
    assert re.findall(r"<tr>(.*?)</tr>", table)[1:] == [
        "<td>0</td><td>90.0</td><td>95.0</td><td>50.0</td>",
        "<td>50</td><td>80.0</td><td>—</td><td>40.0</td>",
        "<td>chance</td><td>50.0</td><td>50.0</td><td>&lt;0.01</td>",
    ]


def test_a_matrix_has_no_trivial_diagonal_and_shows_chance():
    text = page([facts()])
    recall, transfer = re.findall(r"<table class=matrix>(.*?)</table>", text)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", recall) == ["", "50", "40", ""]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", transfer) == ["90", "80", "70", "90"]
    assert "column: searched view); chance is 2</figcaption>" in text


def test_user_input_is_escaped():
    tags = Tags()
    tags.feed(page([facts(), facts(EVIL)]))
    assert "img" not in tags.seen
    assert tags.links == []
    assert tags.seen.count("script") == 2
    assert tags.seen.count("canvas") == 2


def test_tables_include_linear_cca_raw_features_and_chance():
    text = page([facts()])
    row = re.search(r"<tr><td>linear_mean</td>(.*?)</tr>", text)[1]
    assert re.findall(r"<td>([^<]*)</td>", row)[:4] == ["90.0 [78.6, 95.7]", "92.0", "95.0", "50.0"]
    assert "Comparison" not in text
    assert "Comparison" in page([facts(), facts("second")])


@pytest.fixture
def browser(tmp_path):
    """Open a page in a browser, run a script in it, and return the resulting DOM."""
    if BROWSER is None:
        assert os.environ.get("CI") != "true", "CI must have a browser: install Debian's package chromium"
        pytest.skip("no Chromium found: the page was not tried in a browser")

    def open_page(text, script, *, width=None):
        # The page's own policy allows inline scripts and nothing from outside.
        path = tmp_path / "page.html"
        path.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
        if width is not None:  # a window of Chromium is never as narrow as a phone, but a frame in it may be
            path = path.with_name("phone.html")
            path.write_text(f"<iframe src=page.html width={width}></iframe><script>{RECEIVE}</script>")
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout

    return open_page


HOVER = """
const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
const at = (x, y) => ({clientX: box.left + (20 + x * 860) * box.width / 900,
                       clientY: box.top + (20 + y * 560) * box.height / 600});
const tip = () => document.querySelector(".tip").textContent;
const observed = {start: tip()};
canvas.dispatchEvent(new PointerEvent("pointermove", at(0.25, 0.25))); observed.first = tip();
canvas.dispatchEvent(new PointerEvent("pointermove", at(0.99, 0.99))); observed.second = tip();
canvas.dispatchEvent(new PointerEvent("pointermove", at(0.02, 0.98))); observed.nowhere = tip();
const input = document.querySelector("input"); input.value = "9"; input.dispatchEvent(new Event("input"));
observed.searched = tip();
const ink = () => { const d = canvas.getContext("2d").getImageData(0, 0, 900, 600).data; let s = 0;
                    for (let i = 0; i < d.length; i += 4) {
                      s += (d[i] * 3 + d[i + 1] * 5 + d[i + 2] * 7) * d[i + 3] % 9973; }
                    return s; };
const items = () => [...document.querySelector(".legend").children].map((item) => item.textContent);
observed.legend = items();
const select = document.querySelector("select"), seen = [];
for (const option of select.options) {
  select.value = option.value; select.dispatchEvent(new Event("change")); seen.push(ink()); }
observed.scale = items();
select.value = "view"; select.dispatchEvent(new Event("change")); observed.views = items();
const before = ink(); document.querySelector(".legend").children[0].click(); observed.picked = ink() !== before;
document.querySelector(".legend").children[0].click(); observed.again = ink() === before;
const join = document.querySelector("input[type=checkbox]"); join.click(); observed.joined = ink() !== before;
observed.tones = new Set([...document.querySelectorAll(".legend circle")].map((c) => c.getAttribute("fill"))).size;
observed.colours = new Set(seen).size; observed.options = select.options.length;
observed.evil = document.body.dataset.evil || "none"; observed.errors = document.body.dataset.errors || "none";
observed.fetched = performance.getEntriesByType("resource").length; observed.images = document.images.length;
observed.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.documentElement.dataset.observed = JSON.stringify(observed);
"""


def observed(dom):
    tags = re.search(r'data-observed="([^"]*)"', dom)
    assert tags, dom[-2000:]
    return json.loads(tags[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


RECEIVE = "onmessage = (event) => { document.documentElement.dataset.observed = event.data; };"
NARROW = """
const boxes = [...document.querySelectorAll(".numbers tr")].map(
  (row) => [...row.cells].map((cell) => cell.getBoundingClientRect()));
const cells = boxes.flat().filter((box) => box.width > 0), width = document.documentElement.clientWidth;
parent.postMessage(JSON.stringify({width, rows: boxes.length,
  cut: cells.filter((box) => box.right > width || box.width < 40).length,
  lines: boxes.map((row) => new Set(row.slice(1, -1).map((box) => box.top)).size)}), "*");
"""


def test_no_column_is_cut_off_or_wrapped_on_a_phone(browser):
    measured = observed(browser(page([facts()]), NARROW, width=390))
    assert 350 < measured["width"] <= 390
    assert measured["cut"] == 0
    assert measured["lines"] == [1] * measured["rows"]  # of the cells between the name of a measure and its explanation


def test_references_without_scores_are_omitted():
    run = facts()
    run.references = {**run.references, "linear CCA": {}}
    assert "linear CCA" not in page([run])


def test_in_a_browser_the_map_reacts_and_labels_are_escaped(browser):
    state = observed(browser(page([facts(), facts("second")]), HOVER))
    assert state["start"] == "Hover over a point, or enter a row."
    assert state["first"] == f"row 4, label {EVIL}, error 0.1, views: left, {EVIL}"
    assert state["second"].startswith("row 9, label </script>")
    assert state["nowhere"] == state["start"]
    assert state["searched"].startswith("row 9")
    assert state["colours"] == state["options"] == 3
    assert (state["errors"], state["evil"], state["fetched"], state["images"]) == ("none", "none", 0, 0)
    assert state["overflow"] <= 0
    assert state["legend"] == ["</script><script>alert(2)</script>", EVIL]
    assert state["views"] == ["left", EVIL]
    assert state["scale"][0] == "0: views coincide"
    assert state["picked"]
    assert state["again"]
    assert state["joined"]


def test_in_a_browser_many_labels_have_different_colours_and_a_legend(browser):
    many = facts()
    many.map = {
        "rows": list(range(40)),
        "labels": [f"kind {i}" for i in range(40)],
        "errors": [0.5] * 40,
        "places": [[[i / 40, i / 40] for i in range(40)], [[i / 40, 1 - i / 40] for i in range(40)]],
    }
    tones = """const circles = [...document.querySelectorAll(".legend circle")];
    const fills = new Set(circles.map((c) => c.getAttribute("fill")));
    document.documentElement.dataset.observed = JSON.stringify([fills.size, document.body.dataset.errors || "none"]);"""
    assert observed(browser(page([many]), tones)) == [40, "none"]


def test_in_a_browser_a_map_without_labels_shows_errors(browser):
    state = observed(browser(page([facts(labels=False)]), HOVER))
    assert state["first"].startswith("row 4, error 0.1")
    assert (state["options"], state["errors"]) == (2, "none")


def test_files_of_the_page_are_package_data():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert "report/files/*" in text
