"""A few labels on signals, in miniature."""

import re

from experiments.miniature import small_runs
from m3g.experiments.output import published
from pictures import colours


def test_eeg_runs_and_is_collected(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(published.EEG["m3g, n = 16"], 1000, 1.23)

    def keep(spec):
        return spec.labels["arm"] in ("m3g, n = 16", "infonce-pwe, n = 64, untuned", "raw", "supervised")

    methods = ["m3g", "infonce-pwe", "raw", "supervised"]
    text, _ = small_runs("eeg", sets, tmp_path, methods=methods, keep=keep)
    assert len(re.findall(r"references, balanced accuracy % \| raw +\| supervised", text)) == 2
    assert "m3g, n = 16" in text
    assert re.search(r"\| m3g, n = 16 +\| 36.6 +\| 49.2 +\| 56.1 +\| 1.23 +\|", text)
    assert colours(tmp_path / "sleep.png") >= 2
    assert colours(tmp_path / "sleep_steps.png") >= 2
    assert colours(tmp_path / "raw.png") >= 2
