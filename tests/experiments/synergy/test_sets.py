"""Data sets whose views depend on each other only jointly."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from m3g.experiments.engine.registry import find
from m3g.experiments.synergy import sets as synergy_sets
from m3g.experiments.synergy.sets import SETS, Rows, add_modulo_ten, compose, stratified


def _source(n=400, seed=0):
    random = np.random.default_rng(seed)
    return stratified(np.arange(n)[:, None], np.arange(n) % 10, random)


def test_any_two_digits_of_a_sum_are_independent():
    parts = [_source(seed=seed) for seed in range(3)]
    *rows, _ = compose(parts, add_modulo_ten, np.random.default_rng(0))
    digits = [part.label[chosen] for part, chosen in zip(parts, rows)]
    assert np.array_equal(digits[2], (digits[0] + digits[1]) % 10)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        counts = np.histogram2d(digits[first], digits[second], bins=10)[0]
        assert chi2_contingency(counts).pvalue > 1e-3


def test_without_a_rule_all_views_show_one_digit():
    parts = [_source(seed=seed) for seed in range(3)]
    *rows, _ = compose(parts, None, np.random.default_rng(0))
    digits = [part.label[chosen] for part, chosen in zip(parts, rows)]
    assert np.array_equal(digits[0], digits[1])
    assert np.array_equal(digits[0], digits[2])


def test_no_source_row_occurs_in_two_folds():
    parts = [_source(seed=seed) for seed in range(3)]
    *rows, group = compose(parts, add_modulo_ten, np.random.default_rng(0))
    for part, chosen in zip(parts, rows):
        assert np.array_equal(part.fold[chosen], group)


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_bits_have_the_given_fraction_of_synergy(percent):
    arrays = SETS[f"bits-{percent}"].read(None)
    assert set(arrays) == {"first", "second", "third", "label", "group"}
    assert len(np.unique(arrays["label"])) == 16
    # A linear map of one view predicts the shared bits of the label and none of the XOR bits.
    inputs = np.concatenate([arrays["first"], np.ones((len(arrays["label"]), 1))], 1)
    for bit in range(4):
        target = 2.0 * ((arrays["label"] >> bit) & 1) - 1
        weights = np.linalg.lstsq(inputs, target, rcond=None)[0]
        accuracy = ((inputs @ weights > 0) == (target > 0)).mean()
        assert accuracy < 0.55 if bit < 4 * percent / 100 else accuracy > 0.9


def test_built_in_sets_require_no_files(tmp_path):
    prepare = find("synergy").sets("laptop")
    prepare["digits"](None, tmp_path)
    prepare["bits-100"](None, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bits-100.npz", "bits-50.npz", "digits.npz"]
    with pytest.raises(ValueError, match="mosi_3views"):
        prepare["utterances"](None, tmp_path)


def test_every_fold_has_every_class():
    rows = _source(200)
    assert isinstance(rows, Rows)
    for fold in range(synergy_sets.FOLDS):
        assert set(rows.label[rows.fold == fold]) == set(range(10))
