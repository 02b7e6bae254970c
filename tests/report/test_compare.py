"""Comparison of runs: arms of seeds, intervals, paired differences."""

import numpy as np
import pytest

from m3g.report.compare import Measured, arms, comparison, difference, differences, interval, same_data


def run(name, seed=0, *, rows=None, settings=None, **numbers):
    return Measured(name, numbers, 100, 350, {"loss": "m3g", "seed": seed, **(settings or {})}, rows or {})


def test_one_run_each_has_intervals_over_test_objects():
    head, rows = comparison(
        [Measured("a", {"recall_at_1": 0.5}, 100, 350), Measured("b", {"recall_at_1": 0.9, "alignment": 0.2}, 100, 350)]
    )
    assert head == ["measure", "a", "b"]
    assert rows == [
        ["recall_at_1", "50.0 [40.4, 59.6]", "90.0 [82.6, 94.5]"],
        ["alignment", "—", "0.200"],
    ]
    assert interval(1.0, 10)[1] == 1.0
    assert interval(0.0, 10)[0] == 0.0


def test_linear_cca_raw_features_and_chance_are_the_last_columns():
    references = [
        {"linear CCA": {"recall_at_1": value, "median_rank": 4.0}, "raw": {}, "chance": {"recall_at_1": 0.01}}
        for value in (0.3, 0.4)
    ]
    runs = [
        Measured(name, {"recall_at_1": 0.5, "median_rank": 2.0}, 100, 350, references=part)
        for name, part in zip("ab", references)
    ]
    head, rows = comparison(runs)
    assert head == ["measure", "a", "b", "linear CCA", "chance"]
    assert [row[3:] for row in rows] == [["35.0", "1.0"], ["4.000", "—"]]


def test_runs_on_different_data_have_no_common_baselines():
    runs = [
        Measured(
            name,
            {"recall_at_1": 0.5},
            100,
            350,
            {"data_options.paths": [file]},
            references={"raw": {"recall_at_1": 0.1}},
        )
        for name, file in (("a", "a.npy"), ("b", "b.npy"), ("c", "a.npy"))
    ]
    assert same_data(runs[::2])
    assert comparison(runs[::2])[0] == ["measure", "a", "c", "raw"]
    assert not same_data(runs)
    assert comparison(runs)[0] == ["measure", "a", "b", "c"]


def test_runs_that_differ_only_in_their_seed_are_one_arm():
    ours = [run(f"m-{s}", s, recall_at_1=0.5 + 0.01 * s, alignment=0.1 * s) for s in range(3)]
    other = {"loss": "infonce-pwe", "loss_options.temperature": 0.1}
    theirs = [run(f"i-{s}", s, recall_at_1=0.4 + 0.01 * s, settings=other) for s in (2, 1, 0)]
    lone = run("lone", 0, recall_at_1=0.45, settings={"loss": "kl", "data_options.split_seed": 4})
    by_name = arms([*ours, *theirs, lone])
    assert list(by_name) == ["loss m3g (3 seeds)", "loss infonce-pwe, temperature 0.1 (3 seeds)", "lone"]
    assert [len(group) for group in by_name.values()] == [3, 3, 1]
    head, rows = comparison([*ours, *theirs, lone])
    assert head[1:] == list(by_name)
    # Student's t with 2 degrees of freedom: 4.303 * 0.01 / sqrt(3) = 0.0248
    assert rows[0] == ["recall_at_1", "51.0 [48.5, 53.5]", "41.0 [38.5, 43.5]", "45.0 [35.6, 54.8]"]
    assert rows[1] == ["alignment", "0.100 [-0.148, 0.348]", "—", "—"]
    head, rows = differences([*ours, *theirs, lone])
    first, *others = by_name
    assert head == ["measure", *(f"{name} minus {first}" for name in others)]
    assert rows == [["recall_at_1", "-10.0 [-10.0, -10.0] worse, 3 seeds", "—"]]


def test_the_same_seed_twice_is_not_two_seeds():
    twice = [run("a", 1, recall_at_1=0.5), run("b", 1, recall_at_1=0.6)]
    assert [len(group) for group in arms(twice).values()] == [1, 1]
    later = [run("a", 1, recall_at_1=0.5), run("b", 2, recall_at_1=0.6), run("c", 2, recall_at_1=0.7)]
    assert [len(group) for group in arms(later).values()] == [2, 1]
    # runs are distinguished by their settings; without settings, none are combined
    assert len(arms([Measured("a", {}, 9, 9), Measured("b", {}, 9, 9)])) == 2


def test_arms_of_the_same_name_are_all_shown():
    settings = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 1)
    runs = [Measured("run", {"recall_at_1": 0.5}, 9, 9) for _ in range(3)]
    assert list(arms(runs)) == ["run", "run #2", "run #3"]
    assert comparison(runs)[0] == ["measure", "run", "run #2", "run #3"]
    # the first three settings are equal, and only three are shown
    settings = [{**settings[0], "d": value} for value in (0, 1)] + [settings[1]]
    groups = [run("x", seed, recall_at_1=0.5, settings=part) for part in settings for seed in (0, 1)]
    assert list(arms(groups)) == ["a 0, b 0, c 0 (2 seeds)", "a 0, b 0, c 0 (2 seeds) #2", "a 1, b 1, c 1 (2 seeds)"]


def test_one_seed_is_paired_by_test_rows():
    rng = np.random.default_rng(0)
    right = {row: float(rng.random() < 0.5) for row in range(400)}
    better = {row: max(value, float(rng.random() < 0.2)) for row, value in right.items()}
    other = {"loss": "kl"}
    ours = run("a", rows={"linear_mean": right}, linear_mean=float(np.mean(list(right.values()))))
    theirs = run("b", rows={"linear_mean": better}, settings=other, linear_mean=float(np.mean(list(better.values()))))
    _, ((name, text),) = differences([ours, theirs])
    assert name == "linear_mean"
    assert text.endswith("better, 400 rows")
    paired, _ = difference("linear_mean", [theirs], [ours])
    assert paired.mean == pytest.approx(theirs.numbers["linear_mean"] - ours.numbers["linear_mean"])
    # the paired interval is that of the differences, and much narrower than that of two unpaired fractions
    assert paired.half_width == pytest.approx(1.96 * np.std([better[r] - right[r] for r in right]) / 20, rel=0.15)
    shifted = run("c", rows={"linear_mean": {row + 1: v for row, v in right.items()}}, settings=other, linear_mean=0.5)
    assert differences([ours, shifted])[1] == []  # other test rows: nothing to pair


def test_smaller_is_better_for_some_measures():
    ours = [run(f"a{s}", s, alignment=0.5 + 0.01 * s) for s in range(3)]
    theirs = [run(f"b{s}", s, alignment=0.3 + 0.01 * s, settings={"loss": "kl"}) for s in range(3)]
    assert differences([*ours, *theirs])[1] == [["alignment", "-0.200 [-0.200, -0.200] better, 3 seeds"]]


def test_the_difference_is_that_of_the_columns_if_views_are_missing():
    """Two runs lack different views in 40 % and 10 % of the rows; the contributions of a row differ in scale."""
    rng = np.random.default_rng(0)
    runs = []
    for name, fraction in (("a", 0.4), ("b", 0.1)):
        present = rng.random(100) >= fraction
        values = np.where(present, rng.random(100), np.nan)
        rows = dict(enumerate(values.tolist()))
        settings = {"data_options.paths": [name]}
        runs.append(run(name, rows={"recall_at_1": rows}, settings=settings, recall_at_1=float(np.nanmean(values))))
    paired, unit = difference("recall_at_1", [runs[1]], [runs[0]])
    assert paired is not None
    assert paired.mean == pytest.approx(runs[1].numbers["recall_at_1"] - runs[0].numbers["recall_at_1"])
    either = [i for i in range(100) if any(not np.isnan(run.rows["recall_at_1"][i]) for run in runs)]
    assert unit == f"{len(either)} rows" != "100 rows"


def test_intervals_count_the_rows_that_contribute():
    rows = {"recall_at_1": {i: 0.5 if i < 40 else float("nan") for i in range(100)}}
    _, table = comparison([run("a", rows=rows, recall_at_1=0.5), run("b", settings={"loss": "kl"}, recall_at_1=0.5)])
    low, high = interval(0.5, 40)
    assert table == [["recall_at_1", f"50.0 [{100 * low:.1f}, {100 * high:.1f}]", "50.0 [40.4, 59.6]"]]


def test_scores_without_common_rows_have_no_difference():
    rows = [{"recall_at_1": {0: value, 1: float("nan")}} for value in (0.5, float("nan"))]
    runs = [run(name, rows=part, settings={"loss": name}, recall_at_1=0.5) for name, part in zip("ab", rows)]
    assert differences(runs)[1] == []


def test_intervals_over_overlapping_splits_are_corrected():
    values = (0.50, 0.53, 0.58)

    def arms_with(name, **other):
        runs = [
            run(f"a{i}", settings={name: i, "arm": "a"}, recall_at_1=value, median_rank=2.0)
            for i, value in enumerate(values)
        ]
        return runs + [run(f"b{i}", settings={name: i, "arm": "b", **other}, recall_at_1=0.4) for i in range(3)]

    seeds, splits = arms_with("data_options.seed"), arms_with("data_options.split_seed")
    half = 4.303 * np.std(values, ddof=1) / 3**0.5
    wide = half * (1 + 3 * 100 / 350) ** 0.5  # test_to_train of `paired`
    for runs, expected, unit in ((seeds, half, "3 seeds"), (splits, wide, "3 splits")):
        paired, pairs = difference("recall_at_1", runs[:3], runs[3:])
        assert (paired.half_width, pairs) == (pytest.approx(expected, rel=1e-3), unit)
        low, high = 100 * (np.mean(values) - expected), 100 * (np.mean(values) + expected)
        head, rows = comparison(runs)
        assert head[1:] == [f"arm a ({unit})", f"arm b ({unit})"]
        assert rows[0][1] == f"{100 * np.mean(values):.1f} [{low:.1f}, {high:.1f}]"


def test_seeds_of_one_split_are_averaged_first():
    scores = {(0, 0): 0.5, (1, 0): 0.7, (0, 3): 0.4, (1, 3): 0.6}  # by seed and split seed
    ours = [
        run(f"a{i}", seed, settings={} if split == 0 else {"data_options.split_seed": split}, recall_at_1=value)
        for i, ((seed, split), value) in enumerate(scores.items())
    ]
    theirs = [
        run(f"b{i}", seed, settings={"loss": "kl", "data_options.split_seed": split}, recall_at_1=0.4)
        for i, (seed, split) in enumerate(scores)
    ]
    paired, unit = difference("recall_at_1", ours, theirs)
    assert (paired.pairs, unit) == (2, "4 seeds, 2 splits")
    assert paired.mean == pytest.approx(0.15)
    assert paired.half_width == pytest.approx(12.706 * (0.1 / 2**0.5) * (1 / 2 + 100 / 350) ** 0.5, rel=1e-3)
