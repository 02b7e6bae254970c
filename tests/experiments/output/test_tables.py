"""Markdown tables."""

from m3g.experiments.output.tables import grid_table, write_table


def test_a_page_contains_the_parts_that_are_not_empty(tmp_path):
    assert write_table(["one", "", "two"], tmp_path) == "one\n\ntwo"
    assert (tmp_path / "table.md").read_text() == "one\n\ntwo\n"


def test_the_first_setting_of_each_arm_is_marked():
    tried = [
        {"labels": {"arm": arm, "loss_options.epsilon": value}, "metrics": {"validation": score}}
        for arm, value, score in (("a", 0.1, 0.9), ("a", 0.2, 0.8), ("b", 0.1, 0.7))
    ]
    lines = [" ".join(line.split()) for line in grid_table(tried, first="method").splitlines()]
    assert lines[0] == "| method | setting | validation % | |"
    assert lines[2:] == [
        "| a | epsilon 0.1 | 90.0 | chosen |",
        "| a | epsilon 0.2 | 80.0 | |",
        "| b | epsilon 0.1 | 70.0 | chosen |",
    ]
    assert grid_table([], first="method") == ""
