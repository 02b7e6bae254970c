"""All results on one page."""

import json

from experiments.miniature import small_runs
from m3g.cli import main
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.engine.store import Store


def test_the_summary_is_one_page_of_all_finished_runs(tmp_path, capsys):
    small_runs("iterations", None, tmp_path / "iterations", keep=lambda spec: spec.labels["k"] == 2, miniature=False)
    for scale, folder in (("laptop", "epsilon"), ("paper", "epsilon-paper")):
        store = Store(tmp_path / folder)
        for spec in find("epsilon").specs(Request(seeds=1, scale=scale, sets=["tinyimagenet", "imagenet"])):
            store.folder(spec.id).mkdir(parents=True)
            result = {"id": spec.id, "experiment": "epsilon", "labels": dict(spec.labels), "seconds": 1.0}
            store.save(spec.id, {**result, "metrics": {"test": 0.5}})
    assert main(["reproduce", "summary", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "summary.md").read_text()
    assert page.index("## epsilon") < page.index("## iterations")
    assert "](epsilon/epsilon.png)" in page
    assert page.count("18 runs, 18.0 seconds in total.") == 2
    assert page.index("## epsilon at the paper's scale") < page.index("](epsilon-paper/epsilon.png)")
    assert "## variants" not in page
    record = tmp_path / "variants"
    record.mkdir()
    (record / "results.jsonl").write_text(json.dumps({"id": "0", "experiment": "variants", "seconds": 2.0}) + "\n")
    (record / "table.md").write_text("1 run.\n\n## Points\n\n| stored table |\n")
    assert main(["reproduce", "summary", "--out", str(tmp_path)]) == 0
    assert "| stored table |" in (tmp_path / "summary.md").read_text()
    assert main(["reproduce", "summary", "--out", str(tmp_path / "nothing")]) == 2
    assert "contains no results" in capsys.readouterr().err
