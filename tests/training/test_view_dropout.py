"""Views left out on purpose: which ones depends on seed, step, row and view, and on nothing else."""

from __future__ import annotations

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from m3g import losses
from m3g.training.loop import build, checkpoint, fit
from m3g.training.loop.view_dropout import drop_views
from m3g.training.settings.config import Config


@given(
    k=st.integers(2, 9), n=st.integers(1, 200), share=st.floats(0, 0.99), seed=st.integers(0, 2**63 - 1), data=st.data()
)
def test_every_row_keeps_two_of_the_views_that_it_has(k, n, share, seed, data):
    random = torch.Generator().manual_seed(seed % 1000)
    mask = torch.rand(k, n, generator=random) < 0.6
    mask[data.draw(st.integers(0, k - 1))] = True
    kept = drop_views(mask, torch.arange(n), k, share=share, key=(seed, 3))
    assert not (kept & ~mask).any()
    assert (kept.sum(0) >= mask.sum(0).clamp(max=2)).all()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_share_is_what_was_asked_for(share):
    kept = drop_views(None, torch.arange(20_000), 8, share=share, key=(1, 2))
    assert kept.float().mean(1) == pytest.approx(torch.full((8,), 1 - share), abs=0.02)


def test_a_part_of_a_batch_loses_what_the_whole_batch_loses():
    index = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    whole = drop_views(None, index, 5, share=0.4, key=(0, 9))
    for part in (slice(0, 300, 2), slice(1, 300, 2)):  # as two processes share it
        assert torch.equal(drop_views(None, index[part], 5, share=0.4, key=(0, 9)), whole[:, part])
    assert not torch.equal(drop_views(None, index, 5, share=0.4, key=(0, 10)), whole)
    assert not torch.equal(drop_views(None, index, 5, share=0.4, key=(1, 9)), whole)


def small(**changes):
    content = {
        "data_options": {"batch_size": 200, "views": ["fourier", "karhunen", "zernike"]},
        "encoder_options": {"width": 16, "dropout": 0.2},
        "heads": {"embedding_size": 8, "hidden": 16},
        "loss": "infonce-pwe",
        "view_dropout": 0.3,
        "loop": {"epochs": 1, "evaluate_every": 0, "checkpoint_every": 1, "accelerator": "cpu"},
    }
    for name, value in changes.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    return Config.from_dict(content)


def test_a_resumed_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    class KeepFourth(checkpoint.SaveCheckpoints):
        def _save(self, trainer, module):
            super()._save(trainer, module)
            if trainer.global_step == 4:
                shutil.copy(self.path, tmp_path / "fourth.ckpt")

    monkeypatch.setattr(checkpoint, "SaveCheckpoints", KeepFourth)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    whole = fit.train(small(), tmp_path / "whole")
    weights = whole.weights.read_bytes()
    shutil.copy(tmp_path / "fourth.ckpt", whole.checkpoint)
    assert fit.train(small(), whole.path, resume=True).weights.read_bytes() == weights
    assert fit.train(small(view_dropout=0.0), tmp_path / "all").weights.read_bytes() != weights
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_trains_with_it(name):
    taught = losses.build(name).needs_teacher
    config = small(loss=name, **({"teacher": {"enabled": True}} if taught else {}))
    data = build.build_data(config)
    module = build.build_module(config, data)
    assert module.view_dropout == 0.3
    rows = data.datasets["train"].__getitems__(list(range(64)))
    mask = drop_views(rows["mask"], rows["index"], 3, share=0.3, key=(0, 0))
    value = module.loss(module.net(rows["views"]), mask=mask)
    value.backward()
    assert all(p.grad.isfinite().all() for p in module.net.parameters() if p.grad is not None)


def test_two_views_are_refused():
    config = small(data_options={"views": ["fourier", "karhunen"]})
    with pytest.raises(ValueError, match=r"view_dropout must be 0 with 2 views, .* got 0\.3"):
        build.build_module(config, build.build_data(config))
    with pytest.raises(ValueError, match="view_dropout must be a number from 0"):
        small(view_dropout=1.0)
