"""Mismatched entries: detected during training and excluded from every loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import forked
from m3g import losses
from m3g.cli import main
from m3g.experiments.mismatch.runs import detection
from m3g.training import build_data, build_module
from m3g.training.loop import fit
from m3g.training.mismatch.entries import read_entries
from m3g.training.mismatch.reliability import Mismatch, _pair_scores
from m3g.training.settings.config import Config
from training.mismatch import observing_process


def noisy_views(k, n, d, *, wrong, seed=0):
    """Views that share an object's vector up to noise, and the entries (k, n) that show another object."""
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(1, n, d, generator=generator) + 0.3 * torch.randn(k, n, d, generator=generator)
    swapped = torch.zeros(k, n, dtype=torch.bool)
    for l in range(k):
        rows = torch.randperm(n, generator=generator)[:wrong]
        views[l, rows] = views[l, rows.roll(1)]
        swapped[l, rows] = True
    return views, swapped


@settings(max_examples=8, deadline=None, derandomize=True)
@given(k=st.integers(3, 6), n=st.integers(40, 120), seed=st.integers(0, 100))
def test_swapped_entries_are_unreliable(k, n, seed):
    views, swapped = noisy_views(k, n, 16, wrong=max(2, n // 20), seed=seed)
    mismatch = Mismatch(k, n)
    for _ in range(4):
        mismatch.observe(views, torch.arange(n))
    assert detection(mismatch.log_odds(), swapped)["auc"] > 0.98
    kept = mismatch.trusted(torch.arange(n), None)
    assert (kept | swapped).float().mean() > 0.98
    assert kept.any(0).all()


def test_correct_rows_are_reliable():
    views, _ = noisy_views(4, 64, 16, wrong=0)
    mismatch = Mismatch(4, 64)
    assert mismatch.trusted(torch.arange(64), None) is None  # before any observation
    for _ in range(4):
        mismatch.observe(views, torch.arange(64))
    assert mismatch.trusted(torch.arange(64), None) is None


def test_unrelated_views_are_not_evaluated():
    mismatch = Mismatch(3, 64)
    for step in range(20):
        mismatch.observe(torch.randn(3, 64, 8, generator=torch.Generator().manual_seed(step)), torch.arange(64))
    assert mismatch.trusted(torch.arange(64), None) is None
    assert (mismatch.evidence == 0).all()


def test_pair_scores_are_the_logarithm_of_n_softmax_both_ways():
    views = torch.nn.functional.normalize(torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    similar = views[0] @ views[1].T / 0.1
    expected = (similar.log_softmax(1) + similar.log_softmax(0)) / 2 + torch.tensor(5.0).log()
    scores = _pair_scores(views, torch.ones(2, 5, dtype=torch.bool))
    torch.testing.assert_close(scores[0, 1], expected)
    torch.testing.assert_close(scores[1, 0], expected.T)


def test_missing_entries_are_not_evaluated_and_have_no_effect():
    views, _ = noisy_views(3, 50, 16, wrong=3)
    mask = torch.rand(3, 50, generator=torch.Generator().manual_seed(1)) < 0.8
    mask[0] = True
    detectors = []
    for filling in (0.0, float("nan")):
        mismatch = Mismatch(3, 60)
        for _ in range(3):
            mismatch.observe(torch.where(mask.unsqueeze(-1), views, filling), torch.arange(50) + 10, mask=mask)
        detectors.append(mismatch)
    for one, other in zip(detectors[0].buffers(), detectors[1].buffers()):
        assert torch.equal(one, other)
    assert detectors[0].evidence.isfinite().all()
    evaluated = (detectors[0].visits > 0).any(1)[:, 10:]
    assert not evaluated[~mask].any()
    assert not (detectors[0].visits > 0)[..., :10].any()
    kept = detectors[0].trusted(torch.arange(50) + 10, mask)
    assert not kept[~mask].any()


def test_subsets_of_the_views_are_evaluated():
    views, swapped = noisy_views(5, 80, 16, wrong=5)
    mismatch = Mismatch(5, 80)
    for subset in ([0, 1, 2], [2, 3, 4], [0, 3, 4], [1, 2, 4], [0, 1, 3]) * 4:
        mismatch.observe(views[subset], torch.arange(80), views=subset)
    assert detection(mismatch.log_odds(), swapped)["auc"] > 0.95


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_trains_with_mismatch_detection(name):
    with_teacher = losses.build(name).needs_teacher
    config = small(loss=name, data_options={"swapped": 0.1}, **({"teacher": {"enabled": True}} if with_teacher else {}))
    data = build_data(config)
    module = build_module(config, data)
    views, swapped = noisy_views(3, 48, 16, wrong=4)
    rows = torch.arange(48)
    index = data.datasets["train"].index[rows]
    for _ in range(3):
        module.mismatch.observe(views, index)
    trusted = module.mismatch.trusted(index, None)
    assert (trusted == ~swapped).float().mean() > 0.9
    value = module.loss(module.net([view[rows] for view in data.datasets["train"].views]), mask=trusted)
    value.backward()
    assert all(p.grad.isfinite().all() for p in module.net.parameters() if p.grad is not None)


def small(**changes):
    content = {
        "data_options": {"batch_size": 200, "views": ["fourier", "karhunen", "zernike"], "swapped": 0.1},
        "encoder_options": {"width": 16, "dropout": 0.2},
        "heads": {"embedding_size": 8, "hidden": 16},
        "loss": "infonce-pwe",
        "mismatch": True,
        "loop": {"epochs": 4, "evaluate_every": 0, "checkpoint_every": 1, "accelerator": "cpu"},
    }
    for name, value in changes.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    return Config.from_dict(content)


def test_data_without_persistent_rows_are_an_error(tmp_path):
    from PIL import Image

    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(8):
            Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / name / f"{i}.png")
    config = Config(data="images", data_options={"root": str(tmp_path), "size": 8, "batch_size": 2}, mismatch=True)
    with pytest.raises(ValueError, match="mismatch must be false for ImageFolders"):
        build_module(config, build_data(config))


def test_an_empty_list_is_explained(tmp_path, capsys):
    """After one step from random weights rows are not distinguishable; a list of reliable entries is no error."""
    config = small(encoder="mlp", loop={"epochs": 1, "max_steps": 1}, data_options={"swapped": 0.0})
    run = fit.train(config, tmp_path / "run")
    assert len(read_entries(run.path)) == 0
    assert main(["audit", str(run.path)]) == 0
    assert "no entry was evaluated, because the network did not learn to distinguish rows" in capsys.readouterr().err
    run.mismatch.write_text("row,view,reliability,log_odds\n7,zernike,0.9,2.2\n8,zernike,0.99,4.6\n")
    assert main(["audit", str(run.path)]) == 0
    message = capsys.readouterr().err
    assert "no entry is more likely wrong than correct; the least reliable of 2 is zernike of row 7 (0.900)" in message


def test_two_processes_evaluate_like_one_with_the_full_batch(tmp_path):
    whole = observing_process.observed(slice(None))
    assert int((whole < 0).sum()) > 2
    for log_odds in forked.in_group(observing_process.compute, 2, tmp_path):
        torch.testing.assert_close(log_odds, whole, atol=1e-3, rtol=1e-3)
