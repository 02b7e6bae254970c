"""Probes trained with a few labels per class."""

import pytest
import torch

from m3g.evaluation import few_shot_probe


def channels(n, seed, *, informative=1, k=3, noise=0.3):
    """k channels (n, 6) of which the last `informative` distinguish three classes with frequencies 6 : 3 : 1."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2]).repeat(n // 10)
    features = noise * torch.randn(k, n, 6, generator=random)
    features[k - informative :] += torch.nn.functional.one_hot(labels, 6)
    return features, labels


def test_every_class_has_the_same_weight():
    x, y = channels(600, 0, informative=3, noise=0.1)
    unknown = torch.where(y == 2, 0, y)  # rows that look like the frequent class
    separated = few_shot_probe(x, y, x[:, unknown == y], unknown[unknown == y], shots=10, draws=1)
    assert separated.balanced_accuracy == 1
    constant = few_shot_probe(x, y, torch.zeros_like(x), y, shots=10, draws=1)  # one class for all rows
    assert constant.balanced_accuracy == pytest.approx(1 / 3)
    assert constant.accuracy in (pytest.approx(0.6), pytest.approx(0.3), pytest.approx(0.1))


def test_few_labels_suffice_for_separated_classes_and_not_for_noise():
    x, y = channels(600, 0, informative=3, noise=0.1)
    test_x, test_y = channels(300, 1, informative=3, noise=0.1)
    separated = few_shot_probe(x, y, test_x, test_y, shots=10)
    assert separated.balanced_accuracy > 0.95
    noise = few_shot_probe(*channels(600, 0, informative=0), *channels(300, 1, informative=0), shots=10)
    assert noise.balanced_accuracy == pytest.approx(1 / 3, abs=0.1)
    assert noise.deviation > 0


def test_more_labels_are_better_and_find_the_informative_channel():
    data = (*channels(4000, 0), *channels(500, 1))
    few, many = (few_shot_probe(*data, shots=shots, draws=2).balanced_accuracy for shots in (5, 150))
    assert many > few
    assert many > 0.9


def test_draws_are_fixed_by_the_seed_and_test_labels_are_not_used_for_any_choice():
    x, y = channels(400, 0)
    test_x, test_y = channels(200, 1)
    once = few_shot_probe(x, y, test_x, test_y, shots=10, draws=1)
    assert few_shot_probe(list(x), y, list(test_x), test_y, shots=10, draws=1) == once
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert few_shot_probe(x, y + 7, test_x, test_y + 7, shots=10, draws=1) == once
    assert torch.equal(before, torch.get_rng_state())
    assert few_shot_probe(x, y, test_x, test_y, shots=10, draws=1, seed=1) != once


def test_errors_are_one_sentence():
    x, y = channels(100, 0)
    with pytest.raises(ValueError, match="half of the rows of the rarest class, 5, got 6"):
        few_shot_probe(x, y, x, y, shots=6)
    with pytest.raises(ValueError, match="train must have channels of one shape"):
        few_shot_probe([x[0], x[1][:, :2]], y, x, y, shots=2)


def test_classes_without_test_rows_are_not_part_of_the_balanced_accuracy():
    points = 3 * torch.eye(3).expand(2, -1, -1)
    labels = torch.arange(3).repeat_interleave(40)
    similar_to = torch.tensor([0] * 10 + [2] * 10 + [1] * 20)  # half of class 0 looks like class 2, which has no row
    true_labels = torch.tensor([0] * 20 + [1] * 20)
    probe = few_shot_probe(points[:, labels], labels, points[:, similar_to], true_labels, shots=10, draws=1)
    assert probe.balanced_accuracy == pytest.approx((0.5 + 1.0) / 2)
