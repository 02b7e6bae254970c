"""Runs on the hub: upload to and download from a fake server, interruption, tampering, offline mode."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import m3g
from hub_server import fake_hub
from m3g.cli import main
from m3g.training.runs.export import digest

QUICK = ["--loop.epochs", "1", "--encoder_options.width", "8", "--heads.hidden", "8", "--logger", "none"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for seed, name in enumerate(("a", "b")):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).normal(3, 2, (60, 5)))
    views = [str(folder / f"{name}.npy") for name in ("a", "b")]
    assert (
        main(["train", *QUICK, "--data_options.batch_size", "20", "--views", *views, "--out", str(folder / "run")]) == 0
    )
    return folder / "run"


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with fake_hub(monkeypatch, tmp_path / "hf") as hub:
        yield hub


def push(run):
    assert main(["push", str(run), "me/mine", "--license", "apache-2.0"]) == 0


def outputs(net):
    return net([torch.ones(2, 5)] * 2).detach()


def test_a_pushed_run_is_loaded_by_name(run, server, monkeypatch):
    push(run)
    torch.testing.assert_close(outputs(m3g.load("me/mine")), outputs(m3g.load(run)))
    ((_, files),) = server.repositories["me/mine"]
    card = files["README.md"].decode()
    assert set(files) >= {"model.safetensors", "model.json", "config.yaml", "results.json", "plots/map.png"}
    assert not [path for path in files if "checkpoint" in path or path.startswith("tensorboard")]
    number = json.loads((run / "results.json").read_text())["numbers"]["recall_at_1"]
    assert f"| recall_at_1 | {number:.4g} |" in card
    for part in (
        'license: "apache-2.0"',
        "library_name: m3g",
        "| a | 5 |",
        "loss: `m3g`",
        'm3g.load("me/mine")',
        "@inproc",
    ):
        assert part in card
    # the commands accept the name too; without a connection, the earlier download is used
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    server.repositories.clear()
    assert main(["embed", "me/mine", "--out", "e.npz"]) == 0


@pytest.mark.slow
def test_the_variables_of_the_hub_client_are_respected(run, server, tmp_path):
    """In a separate process, because the client reads them at import."""
    push(run)
    env = {**os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "another")}
    command = [sys.executable, "-c", "import m3g; m3g.load('me/mine')"]
    completed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    assert list((tmp_path / "another").rglob("model.safetensors"))


def test_a_revision_selects_a_commit(run, server):
    push(run)
    first = server.repositories["me/mine"][0][0]
    server.commit("me/mine", {"model.json": b"{}"})
    with pytest.raises(ValueError, match="damaged or of another kind"):
        m3g.load("me/mine")
    for net in (m3g.load(f"me/mine@{first}"), m3g.load("me/mine", revision=first)):
        torch.testing.assert_close(outputs(net), outputs(m3g.load(run)))


def test_an_interrupted_download_is_an_error_and_the_next_one_completes_it(run, server):
    server.commit("me/mine", {path.name: path.read_bytes() for path in run.iterdir() if path.name.startswith("model.")})
    server.cut = True
    with pytest.raises(ValueError, match="repository must be a name on a hub that can be reached and read from"):
        m3g.load("me/mine")
    server.cut = False
    torch.testing.assert_close(outputs(m3g.load("me/mine")), outputs(m3g.load(run)))


def test_a_tampered_file_is_rejected(run, server):
    weights = bytearray((run / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    files = {"model.json": (run / "model.json").read_bytes(), "model.safetensors": bytes(weights)}
    server.commit("me/mine", {**files, "evil.py": b"raise SystemExit('executed')"})
    with pytest.raises(ValueError, match="its SHA-256 differs"):
        m3g.load("me/mine")
    model = json.loads(files["model.json"])
    model["encoder"] = {"class_path": "subprocess.Popen", "init_args": {"args": "true"}}
    server.commit("me/mine", {"model.json": json.dumps({**model, "weights": digest(bytes(weights))}).encode()})
    with pytest.raises(ValueError, match="class_path must be a class of"):
        m3g.load("me/mine")


def test_a_name_that_does_not_exist_is_an_error(server, capsys):
    assert main(["embed", "me/nothing", "--out", "e.npz"]) == 2
    message = capsys.readouterr().err
    assert "repository must be a name on a hub that can be reached and read from, got 'me/nothing'" in message


def test_a_misspelt_folder_is_not_searched_on_the_hub(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert main(["evaluate", "runs/mistake"]) == 2
    assert "there is none at runs/mistake" in capsys.readouterr().err


@pytest.mark.parametrize("shared", [False, True])
def test_save_pretrained_keeps_changed_weights(run, tmp_path, shared):
    if shared:
        views = [str(run.parent / f"{name}.npy") for name in ("a", "b")]
        words = ["--shared", "true", "--data_options.batch_size", "20", "--out", str(tmp_path / "shared")]
        assert main(["train", *QUICK, *words, "--views", *views]) == 0
        run = tmp_path / "shared"
    net = m3g.load(run)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.01)
    net.save_pretrained(tmp_path / "saved")
    again = type(net).from_pretrained(tmp_path / "saved")
    views = [torch.randn(3, 5), torch.randn(3, 5)]
    torch.testing.assert_close(again(views), net(views))
    assert not torch.allclose(net(views), m3g.load(run)(views))
    assert again.view_names == net.view_names
