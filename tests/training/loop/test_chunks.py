"""`loop.chunk_size`: the training of the whole batch, whose activations are computed in chunks."""

from types import MappingProxyType

import pytest
import torch

from m3g.training import build_data, build_module
from m3g.training.loop import fit
from m3g.training.loop.light import place, step_loss
from m3g.training.loop.logs import Table
from m3g.training.settings.config import Config


def small(chunk_size, loop=MappingProxyType({}), **changes):
    return Config.from_dict(
        {
            "data_options": {"batch_size": 50, "views": ["fourier", "zernike", "morphology"]},
            "encoder_options": {"width": 16, "dropout": 0.0},
            "heads": {"embedding_size": 8, "hidden": 16, "predictor": True},
            "loop": {"max_steps": 3, "evaluate_every": 0, "accelerator": "cpu", "chunk_size": chunk_size}
            | (loop or {}),
            "logger": ["none"],
            **changes,
        }
    )


SETTINGS = {
    "default loss": {},
    "teacher": {"teacher": {"enabled": True}, "loss": "byol-ave"},
    "some views by the teacher": {"teacher": {"enabled": True, "student_views": 1}, "loss": "vicreg"},
    "view dropout and subsets": {"view_dropout": 0.3, "views_per_step": 2, "subsets_per_step": 2},
    "learned temperature, accumulated": {"loss": "symile", "loop": {"accumulate": 2}},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_weights_after_training_are_those_of_the_whole_batch(tmp_path, settings):
    weights = []
    for chunk_size in (None, 16):
        config = small(chunk_size, **settings)
        weights.append(fit.train(config, tmp_path / str(chunk_size)).net.state_dict())
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=2e-5)


def test_losses_in_bfloat16_are_those_of_the_whole_batch(tmp_path):
    curves = []
    for chunk_size in (None, 16):
        config = small(chunk_size, loss="infonce-pwe", loop={"precision": "bf16-mixed"})
        folder = fit.train(config, tmp_path / str(chunk_size)).path
        curves.append([row["loss"] for row in Table(folder / "metrics.csv").rows()])
    assert len(curves[0]) == 3
    assert curves[1] == pytest.approx(curves[0], rel=2e-3)


def test_encoders_process_one_chunk_at_a_time():
    config = small(16)
    data = build_data(config)
    module = build_module(config, data)
    sizes = []
    for encoder in module.net.encoders:
        encoder.register_forward_hook(lambda _, inputs, output: sizes.append(len(output)))
    place(module, config, per_epoch=1)
    rows = data.datasets["train"].__getitems__(list(range(50)))
    step_loss(module, rows, 0).backward()
    assert sizes == 3 * [16, 16, 16, 2] + 3 * [2, 16, 16, 16]  # the last chunk is recomputed first


def test_batch_normalisation_is_an_error_before_training_unless_frozen():
    data = build_data(small(None))
    norm = {"encoder": "torch.nn.BatchNorm1d", "num_features": 76}
    build_module(small(None, view={"fourier": norm}, encoder_options={}), data)
    build_module(small(16, view={"fourier": {**norm, "frozen": True}}, encoder_options={}), data)
    with pytest.raises(ValueError, match=r"no batch normalisation that uses statistics.*got BatchNorm1d"):
        build_module(small(16, view={"fourier": norm}, encoder_options={}), data)
