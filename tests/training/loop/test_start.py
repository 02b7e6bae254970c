"""Linear encoders start at linear CCA of the training rows, and a resumed run does not fit it again."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import m3g
from m3g import losses
from m3g.training.loop import build, checkpoint, fit, start
from m3g.training.loop.build import build_data, build_module
from m3g.training.loop.start import fitted_views
from m3g.training.settings.config import Config


@pytest.fixture
def config(tmp_path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(120, 4))
    for name, width in (("a", 30), ("b", 200)):
        np.save(tmp_path / f"{name}.npy", hidden @ rng.normal(size=(4, width)) + rng.normal(size=(120, width)))
    return Config.from_dict(
        {
            "data": "arrays",
            "data_options": {"paths": [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")], "test": 0.3},
            "encoder": "residual",
            "encoder_options": {"width": 8},
            "heads": {"embedding_size": 6, "hidden": 8},
            "loss": "infonce-pwe",
            "loop": {"epochs": 2, "evaluate_every": 0, "checkpoint_every": 1, "accelerator": "cpu"},
        }
    )


def test_the_initial_network_aligns_the_views(config):
    data = build_data(config)
    module = build_module(config, data).eval()
    assert module.start.at_linear_cca
    views, _, _ = data.arrays("test")
    with torch.no_grad():
        a, b = module.net(views)
    assert torch.cosine_similarity(a, b).mean() > 0.8
    assert build_module(config, data, start=False).start == (False, "")


def test_weights_are_not_averaged_with_random_ones_if_linear_cca_cannot_be_fitted(
    config, tmp_path, monkeypatch, capsys
):
    def refuse(*args, **options):
        raise ValueError("views must have rows.")

    monkeypatch.setattr(start, "LinearCCA", refuse)
    run = fit.train(config, tmp_path / "run")
    line = "linear encoders start from random weights, because linear CCA cannot be fitted: views must have rows."
    assert line in capsys.readouterr().out
    state = checkpoint.read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert kept["weights"]
    assert kept["start"] == {}


def test_shared_and_single_linear_encoders_have_random_initial_weights(config):
    shared = m3g.nets.build_net([(5,), (5,)], encoder="linear", shared=True)
    single = m3g.nets.build_net([(5,), (6,)], encoder=[{"kind": "linear"}, {"kind": "mlp"}])
    assert fitted_views(shared) == fitted_views(single) == []


def test_a_resumed_run_reads_the_initial_weights_from_its_checkpoint(config, tmp_path, monkeypatch, capsys):
    whole = fit.train(config, tmp_path / "whole")
    assert "start at linear CCA" in capsys.readouterr().out
    first = fit.train(config, tmp_path / "first")
    shutil.rmtree(first.path / "tensorboard", ignore_errors=True)
    assert first.weights.read_bytes() == whole.weights.read_bytes()

    def refuse(*args):
        raise AssertionError

    monkeypatch.setattr(build, "start_at_linear_cca", refuse)
    assert fit.train(config, whole.path, resume=True).weights.read_bytes() == first.weights.read_bytes()


def test_a_loaded_run_gives_the_embeddings_of_the_network(config, tmp_path):
    run = fit.train(config, tmp_path / "run")
    data = build_data(config)
    views, _, _ = data.arrays("test")
    raw = [view * divisor + mean for view, (mean, divisor) in zip(views, data.scaling)]
    with torch.no_grad():
        actual, expected = m3g.load(run.path)(raw), run.net.eval()(views)
    assert torch.allclose(actual, expected, atol=1e-4)


def test_mcca_warns_about_a_batch_that_is_too_small(config, tmp_path):
    config.loss, config.heads.embedding_size = "mcca", 64
    build_module(config, build_data(config))  # without a warning
    with pytest.warns(UserWarning, match=r"got 64 points and 64 dimensions.*--data_options.batch_size 256") as caught:
        fit.train(config, tmp_path / "run")
    assert sum("mcca requires" in str(warning.message) for warning in caught) == 1


def test_the_loss_mcca_warns_once_outside_of_m3g_train():
    loss = losses.MCCA()
    with pytest.warns(UserWarning, match=r"got 8 points and 6 dim.*a batch size of 24 or an embedding size of 2\."):
        loss(torch.randn(3, 8, 6))
    loss(torch.randn(3, 8, 6))
    losses.MCCA()(torch.randn(3, 12, 6))


def test_linear_cca_is_fitted_on_a_limited_number_of_values(config, monkeypatch):
    data = build_data(config)
    rows = data.num_rows("train")
    assert len(fitted_rows(data, monkeypatch)) == rows
    monkeypatch.setattr(start, "MAX_VALUES", 230 * 50)
    assert len(fitted_rows(data, monkeypatch)) == 50
    monkeypatch.setattr(start, "MAX_VALUES_FROM_FILES", 230 * 20)
    monkeypatch.setattr(start, "IN_MEMORY", 4 * 230 * rows - 1)
    assert len(fitted_rows(data, monkeypatch)) == 20


def fitted_rows(data, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(start, "LinearCCA", lambda views, mask, **options: views[0])
        return start.fit_linear_cca(data, [0, 1], size=6)


def test_missing_entries_and_their_treatment_are_logged(config):
    def line():
        return fit._missing_entries(config, build_data(config), build.build_loss(config))

    assert line() == ""
    config.data_options["absent"] = 0.4
    assert line().endswith("are missing: the loss omits them")
    config.loss, config.loss_options = "m3g", {}
    assert "replaces them; --loss m3g-pairs omits them" in line()
    config.loss_options = {"cost": "product"}  # pairs of views may be independent
    assert line().endswith("replaces them")


def test_one_numeric_view_beside_text_starts_at_linear_cca(tmp_path):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, 90)
    words = ("oak", "pine", "beech", "ash")
    lines = [f"{words[k]} board no {rng.integers(50)},{k + rng.normal():.3f},{k - rng.normal():.3f}" for k in kind]
    (tmp_path / "boards.csv").write_text("\n".join(["name,price,weight", *lines]) + "\n")
    config = Config.from_dict({"data": "objects", "data_options": {"table": str(tmp_path / "boards.csv")}})
    data = build_data(config)
    module = build_module(config, data)
    assert fitted_views(module.net) == [0, 1]
    assert "start at linear CCA" in module.start.line


def test_text_beside_images_and_a_single_number_has_random_initial_weights(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(60):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    words = ("oak", "pine", "beech", "ash", "elm")
    lines = [f"{words[i % 5]} {words[i % 3]} no {rng.integers(20)},{i}.png,{rng.normal():.3f}" for i in range(60)]
    (tmp_path / "trees.csv").write_text("\n".join(["name,photo,height", *lines]) + "\n")
    config = Config.from_dict({"data": "objects", "data_options": {"table": str(tmp_path / "trees.csv")}})
    module = build_module(config, build_data(config))
    assert module.start == (False, "")
    weight = module.net.encoders[0].weight  # linear CCA with one number would have one component
    assert int(torch.linalg.matrix_rank(weight)) == min(weight.shape) > 1
