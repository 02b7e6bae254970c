"""Limits of settings files."""

import pytest

from m3g.training.settings.plain_yaml import plain_yaml


@pytest.mark.parametrize("text", ["[" * 20_000 + "]" * 20_000, "{a: " * 30 + "1" + "}" * 30])
def test_deeply_nested_settings_are_rejected(tmp_path, monkeypatch, error_line, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep.yaml").write_text("loss_options: " + text)
    assert "nested more than 20 levels deep" in error_line("train", "--config", "deep.yaml")
    assert "nested more than 20 levels deep" in error_line("train", "--loss_options.solver", text)


def test_aliases_that_expand_to_billions_of_values_are_rejected(tmp_path, error_line):
    lines = ["a: &a0 [1, 1]", *(f"b{i}: &a{i + 1} [*a{i}, *a{i}]" for i in range(40))]
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    assert "it has an alias" in error_line("train", "--config", tmp_path / "laughs.yaml")


def test_dates_are_strings():
    assert plain_yaml("{day: 2020-01-01, rate: 1e-3, seed: 3}") == {"day": "2020-01-01", "rate": 0.001, "seed": 3}
