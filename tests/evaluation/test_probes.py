"""Linear probes, and their transfer between views."""

import pytest
import torch

from m3g.evaluation import Embedded, Probe, knn_accuracy, linear_probe, quick_probe, transfer_probe
from m3g.evaluation.probes import STRENGTHS


def blobs(n=120, d=6, classes=3, noise=0.3, seed=0):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    return centres[labels] + noise * torch.randn(n, d, generator=random), labels


PROBES = [
    pytest.param(lambda *parts: linear_probe(*parts).accuracy, id="linear"),
    pytest.param(quick_probe, id="quick"),
    pytest.param(lambda x, y, *test: Probe(x, y, kind="ridge").accuracy(*test), id="ridge"),
    pytest.param(knn_accuracy, id="knn"),
]


@pytest.mark.parametrize("probe", PROBES)
def test_probes_are_accurate_on_separable_classes_and_not_on_noise(probe):
    x, y = blobs()
    test_x, test_y = blobs(seed=1)
    assert probe(x, y, test_x, test_y) > 0.95
    noise = torch.randn(120, 6, generator=torch.Generator().manual_seed(3))
    others = torch.randn(600, 6, generator=torch.Generator().manual_seed(4))
    assert probe(noise, y, others, torch.arange(600) % 3) < 0.5


@pytest.mark.parametrize("probe", PROBES)
def test_labels_may_be_any_numbers(probe):
    x, y = blobs()
    assert probe(x, y, x, y) == probe(x, 10 * y + 7, x, 10 * y + 7)


def test_transfer_matrix_shows_which_views_share_a_space():
    x, y = blobs()
    views = torch.stack([x, x + 0.01, -x])
    points = Embedded(views, labels=y)
    matrix = transfer_probe(points, points)
    assert matrix.shape == (3, 3)
    assert matrix[0, 1] > 0.95
    assert matrix.diagonal().min() > 0.95
    assert matrix[0, 2] < 0.5  # the third view is mirrored, so a probe of another view fails on it


def test_transfer_excludes_missing_rows():
    x, y = blobs()
    views = torch.stack([x, x])
    mask = torch.ones(2, 120, dtype=torch.bool)
    mask[1, ::2] = False
    points = Embedded(torch.where(mask[..., None], views, torch.nan), labels=y, mask=mask)
    for kind in ("logistic", "ridge"):
        assert transfer_probe(points, points, kind=kind).min() > 0.95


def test_ridge_solves_the_normal_equations_with_the_best_strength_on_held_out_rows():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(25, 6, generator=random, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(25, generator=random, dtype=torch.float64) > 0).long()
    model = Probe(x, y, kind="ridge").model[-1]
    chosen = model.alpha_ / 25
    z = (x - x.mean(0)) / x.std(0, correction=0)
    classes = torch.eye(2, dtype=torch.float64)[y]

    def solution(rows, strength):
        # centre and penalty are those of all rows, as in the closed form
        ones = torch.cat([z[rows], torch.ones(len(rows), 1, dtype=z.dtype)], dim=1)
        penalty = torch.diag(torch.tensor([strength * 25.0] * 6 + [0.0], dtype=z.dtype))
        return torch.linalg.solve(ones.T @ ones + penalty, ones.T @ classes[rows])

    whole = solution(list(range(25)), chosen)
    # scikit-learn's targets are -1 and 1: twice the weights of classes 0 and 1
    assert torch.allclose(2 * whole[:-1, 1], torch.from_numpy(model.coef_).flatten())
    errors = {}
    for strength in STRENGTHS:
        total = 0.0
        for i in range(25):
            w = solution([j for j in range(25) if j != i], strength)
            total += float((classes[i] - torch.cat([z[i], torch.ones(1, dtype=z.dtype)]) @ w).square().sum())
        errors[strength] = total
    assert chosen == min(errors, key=lambda strength: errors[strength])


def test_errors_are_one_sentence():
    x, y = blobs()
    cases = [
        ((x, y[:-1], x, y), "train_labels must be 120 labels"),
        ((x, y, x[:, :2], y), "test must have 6 features, as many as train, got 2"),
        ((x[None], y, x, y), r"train must have shape \(n, d\) with n > 0, got shape \(1, 120, 6\)"),
        ((x / 0, y, x, y), "train must be finite numbers"),
    ]
    for arguments, words in cases:
        for probe in (linear_probe, quick_probe, knn_accuracy):
            with pytest.raises(ValueError, match=words):
                probe(*arguments)
    with pytest.raises(ValueError, match="at least 2 classes"):
        quick_probe(x, torch.zeros(120), x, y)
    with pytest.raises(ValueError, match=r"^features must have shape \(n, d\) with n > 0, got shape \(0, 6\)"):
        Probe(x[:0], y[:0])
    with pytest.raises(ValueError, match=r"^labels must be 120 labels"):
        Probe(x, y[:-1])
    with pytest.raises(ValueError, match=r"^features must have 6 columns, as in training, got 2"):
        Probe(x, y).correct(x[:, :2], y)
    with pytest.raises(ValueError, match="neighbours must be a number from 1 to 120"):
        knn_accuracy(x, y, x, y, neighbours=121)
    with pytest.raises(ValueError, match=r"embeddings \(k, n, d\) with the same k, got none and shape \(1, 120, 6\)"):
        transfer_probe(Embedded(features=[x], labels=y), Embedded(x[None], labels=y))
    with pytest.raises(ValueError, match="train and test must have labels, got none in test"):
        transfer_probe(Embedded(x[None], labels=y), Embedded(x[None]))
    with pytest.raises(ValueError, match="kind must be one of 'logistic', 'ridge', got 'svm'"):
        Probe(x, y, kind="svm")
