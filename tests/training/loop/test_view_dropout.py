"""View dropout: the dropped entries depend only on seed, step, row and view."""

from __future__ import annotations

import shutil

import pytest
import torch

from m3g import losses
from m3g.data.entries import drop_entries, hashed_draws
from m3g.training.loop import build, checkpoint, fit
from m3g.training.settings.config import Config


def small(**changes):
    content = {
        "data_options": {"batch_size": 200, "views": ["fourier", "karhunen", "zernike"]},
        "encoder_options": {"width": 16, "dropout": 0.2},
        "heads": {"embedding_size": 8, "hidden": 16},
        "loss": "infonce-pwe",
        "view_dropout": 0.3,
        "loop": {"epochs": 1, "evaluate_every": 0, "checkpoint_every": 1, "patience": 0, "accelerator": "cpu"},
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
def test_every_loss_trains_with_view_dropout(name):
    with_teacher = losses.build(name).needs_teacher
    config = small(loss=name, **({"teacher": {"enabled": True}} if with_teacher else {}))
    data = build.build_data(config)
    module = build.build_module(config, data)
    assert module.view_dropout == 0.3
    rows = data.datasets["train"].__getitems__(list(range(64)))
    mask = drop_entries(rows["mask"], hashed_draws(3, rows["index"], key=(0, 0)), fraction=0.3, keep=2)
    value = module.loss(module.net(rows["views"]), mask=mask)
    value.backward()
    assert all(p.grad.isfinite().all() for p in module.net.parameters() if p.grad is not None)


def test_view_dropout_requires_three_views():
    config = small(data_options={"views": ["fourier", "karhunen"]})
    with pytest.raises(ValueError, match=r"view_dropout must be 0 with 2 views, .* got 0\.3"):
        build.build_module(config, build.build_data(config))
    with pytest.raises(ValueError, match="view_dropout must be a number from 0"):
        small(view_dropout=1.0)
