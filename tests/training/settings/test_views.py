"""Settings of single views: shared encoders, and settings that do not apply to a view."""

import torch
from safetensors.torch import load_file

from m3g.cli import main


def test_views_share_weights_and_keep_them(finished, tmp_path):
    views = [str(finished / f"{name}.npy") for name in ("a", "b")]
    options = ["--view.a.width", "8", "--view.b.share", "a", "--loop.epochs", "1", "--data_options.batch_size", "20"]
    options += ["--encoder", "mlp", "--loop.patience", "0"]
    assert main(["train", "--views", *views, *options, "--out", str(tmp_path / "shared")]) == 0
    weights = load_file(tmp_path / "shared" / "model.safetensors")
    assert torch.equal(weights["encoders.0.layers.1.weight"], weights["encoders.1.layers.1.weight"])
    options = ["--view.a.frozen", "true", "--view.b.learning_rate", "1e-4", *options[4:]]
    for epochs in ("1", "2"):
        command = ["train", "--views", *views, *options, "--loop.epochs", epochs, "--out", str(tmp_path / epochs)]
        assert main(command) == 0
    one, two = (load_file(tmp_path / epochs / "model.safetensors") for epochs in ("1", "2"))
    assert torch.equal(one["encoders.0.layers.1.weight"], two["encoders.0.layers.1.weight"])
    assert not torch.equal(one["encoders.1.layers.1.weight"], two["encoders.1.layers.1.weight"])


def test_settings_that_do_not_apply_to_a_view_are_errors(finished, error_line):
    views = [finished / f"{name}.npy" for name in ("a", "b")]
    line = error_line("train", "--views", *views, "--view.a.components", "20", "--dry-run")
    assert "view.a must be a column of --table to have the option components, got other data." in line
    line = error_line("train", "--views", *views, "--encoder", "text", "--dry-run")
    assert "view.a.encoder must suit a view of kind vector, got text, which is for text." in line
