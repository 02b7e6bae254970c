"""The paper's linear probe, on fixed features and on features that change in every epoch."""

import pytest
import torch

from m3g.evaluation import augmented_probe, linear_probe


def blobs(n=120, d=6, classes=3, noise=0.3, seed=0):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    return centres[labels] + noise * torch.randn(n, d, generator=random), labels


def test_linear_probe_chooses_its_rate_without_the_test_rows():
    x, y = blobs(noise=0.8)
    right = linear_probe(x, y, x, y)
    wrong = linear_probe(x, y, x, (y + 1) % 3)  # labels of the test rows change the score, not the choice
    assert right.learning_rate == wrong.learning_rate
    assert right.learning_rate in (0.01, 0.001)
    assert linear_probe(x, y, x, y) == right  # seeded
    assert linear_probe(x, y, x, y, learning_rates=[0.5]).learning_rate == 0.5


def test_linear_probe_does_not_depend_on_the_scale_of_features():
    x, y = blobs(noise=0.8)
    far = x * torch.tensor([1.0, 1e3, 1e-3, 1.0, 1.0, 1.0]) + 100
    assert linear_probe(far, y, far, y).accuracy == pytest.approx(linear_probe(x, y, x, y).accuracy, abs=0.02)


def fixed_batches(x, size, seed=0):
    """Return the same features in every epoch, in the order in which `linear_probe` draws all rows."""
    random = torch.Generator().manual_seed(seed)
    torch.randn(3, x.shape[1], generator=random)  # the initial weights
    orders = [torch.randperm(len(x), generator=random).split(size) for _ in range(100)]
    return lambda epoch: ((x[rows], rows) for rows in orders[epoch])


def test_augmented_probe_with_fixed_features_is_the_linear_probe():
    x, y = blobs(noise=0.8)
    test, test_y = blobs(n=600, noise=0.8, seed=1)
    for rate in (0.01, 0.001):
        expected = linear_probe(x, y, test, test_y, learning_rates=[rate], batch_size=50)
        result = augmented_probe(fixed_batches(x, 50), x, y, test, test_y, steps=3, learning_rates=[rate])
        assert result == expected


def test_augmented_probe_selects_the_rate_on_held_out_rows():
    """The labels of the held-out tenth are wrong, so a classifier trained on them would select another rate."""
    x, y = blobs(n=300, noise=0.05)
    held_out = torch.randperm(300, generator=torch.Generator().manual_seed(0))[::10]
    right = augmented_probe(fixed_batches(x, 100), x, y, x, y, steps=3, learning_rates=[1e-6, 0.1])
    assert right.learning_rate == 0.1
    assert right.accuracy == 1
    wrong = y.clone()
    wrong[held_out] = (wrong[held_out] + 1) % 3
    result = augmented_probe(fixed_batches(x, 100), x, wrong, x, y, steps=3, learning_rates=[1e-6, 0.1])
    assert result.learning_rate == 1e-6  # the larger rate predicts all held-out labels wrongly


def test_augmented_probe_learns_from_the_batches_only():
    x, y = blobs()
    noise = lambda epoch: ((torch.randn(40, 6), torch.arange(40 * i, 40 * i + 40)) for i in range(3))  # noqa: E731
    torch.manual_seed(0)
    assert augmented_probe(noise, x, y, x, y, steps=3).accuracy < 0.8
    assert augmented_probe(fixed_batches(x, 40), x, y, x, y, steps=3).accuracy > 0.95


def test_a_batch_without_rows_for_the_selection_is_skipped():
    x, y = blobs(n=20)
    single = lambda epoch: ((x[i : i + 1], torch.tensor([i])) for i in range(20))  # noqa: E731
    assert augmented_probe(single, x, y, x, y, steps=20, epochs=5).accuracy > 0.9
