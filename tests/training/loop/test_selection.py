"""Choice of the network that is kept: the best evaluation, and its average with linear CCA."""

import torch

from m3g.training.loop.selection import MIN_GAIN, SHARES, BestWeights, epochs_between


def contributions(weights):
    """Ten rows whose contributions grow with the weight at different rates."""
    return weights["w"] * torch.linspace(1.0, 2.0, 10)


def weights(value):
    return {"w": torch.tensor(float(value))}


def test_small_gains_are_noise_and_evaluations_since_the_best_are_counted():
    kept = BestWeights()
    assert kept.improved(0.3, epoch=0)
    assert not kept.improved(0.3 + MIN_GAIN / 2, epoch=1)
    assert not kept.improved(0.2, epoch=2)
    assert (kept.best, kept.epoch, kept.since) == (0.3, 0, 2)
    assert kept.improved(0.3 + 2 * MIN_GAIN, epoch=3)
    assert (kept.epoch, kept.since) == (3, 0)


def test_the_best_weights_are_kept_if_every_average_is_worse():
    kept = BestWeights(epoch=4, weights=weights(1), start=weights(0))
    assert kept.selected_weights(contributions) is kept.weights
    assert kept.share == 1


def test_the_smallest_weight_that_is_not_worse_is_kept():
    def saturated(current):
        return contributions({"w": current["w"].clamp(max=0.45)})

    kept = BestWeights(epoch=4, weights=weights(1), start=weights(0))
    torch.testing.assert_close(kept.selected_weights(saturated)["w"], torch.tensor(0.5))
    assert kept.share == 0.5


def test_all_processes_follow_the_decision_of_the_first():
    decisions = []

    def last_share(decision):
        decisions.append(decision)
        return len(decisions) == len(SHARES)

    kept = BestWeights(epoch=4, weights=weights(1), start=weights(1))
    kept.selected_weights(contributions, broadcast=last_share)
    assert decisions == [True] * len(SHARES)
    assert kept.share == SHARES[-1]


def test_weights_are_not_averaged_without_initial_weights_or_if_these_are_the_best():
    for kept in (BestWeights(epoch=4, weights=weights(1)), BestWeights(epoch=0, weights=weights(1), start=weights(1))):
        assert kept.selected_weights(contributions) is kept.weights


def test_a_run_is_evaluated_about_25_times():
    assert [epochs_between(epochs) for epochs in (1, 25, 60, 600)] == [1, 1, 2, 24]
