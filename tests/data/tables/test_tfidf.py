"""Few texts are read as TF-IDF: training, resuming, loading, search and export, without pickle."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import m3g
from animals import write_csv
from m3g.cli import main
from m3g.data import Objects
from m3g.training.loop.build import build_data
from m3g.training.runs.evaluate import evaluate_run
from m3g.training.runs.export import digest
from m3g.training.runs.folder import Run

PAIRS = [
    ("red", "rot"), ("green", "grün"), ("blue", "blau"), ("white", "weiss"), ("black", "schwarz"), ("cat", "katze"),
    ("dog", "hund"), ("owl", "eule"), ("house", "haus"), ("tree", "baum"), ("big", "gross"), ("small", "klein"),
    ("old", "alt"), ("new", "neu"), ("fast", "schnell"), ("slow", "langsam"),
]  # fmt: skip
ENGLISH, GERMAN = zip(*PAIRS)
SMALL = ["--loop.evaluate_every", "0", "--heads.embedding_size", "16", "--loop.checkpoint_every", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    random = np.random.default_rng(0)
    content = []
    for _ in range(150):
        words = random.choice(16, 5, replace=False)
        texts = (" ".join(names[word] for word in words) for names in (ENGLISH, GERMAN))
        content.append(dict(zip(("english", "german"), texts)))
    content[3]["german"] = None
    table = write_csv(folder, content, "texts.csv")
    words = ["--table", str(table), "--loop.epochs", "4", "--view.german.components", "12"]
    assert main(["train", *words, *SMALL, "--out", str(folder / "run")]) == 0
    return folder


def test_a_small_table_of_texts_is_aligned_by_default(trained):
    results = json.loads((trained / "run" / "results.json").read_text())
    assert results["numbers"]["recall_at_1"] > 0.9
    recipe = json.loads((trained / "run" / "model.json").read_text())
    assert [part["kind"] for part in recipe["inputs"]] == ["tfidf", "tfidf"]
    assert recipe["inputs"][0]["words"] == sorted(ENGLISH)
    assert recipe["view_shapes"] == [[16], [12]]


def test_a_run_on_tfidf_is_loaded_and_searched(trained, tmp_path, monkeypatch, capsys):
    net = m3g.load(trained / "run")
    one = net.embed({"english": ["red cat house unknown", None], "german": ["rot katze haus", "neu"]})
    assert one.mask.tolist() == [[True, False], [True, True]]
    assert float(torch.cosine_similarity(one.embeddings[0, 0], one.embeddings[1, 0], dim=0)) > 0.5
    net.save_pretrained(tmp_path / "copy")
    again = m3g.load(tmp_path / "copy").embed({"english": "red cat", "german": "alt"})
    torch.testing.assert_close(again.embeddings, net.embed({"english": "red cat", "german": "alt"}).embeddings)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    query = ["--query", "german=rot katze haus", "--top", "3", "--out", "t.csv"]
    assert main(["search", str(trained / "run"), *query]) == 0
    line = (tmp_path / "t.csv").read_text().splitlines()[1]
    assert sum(word in line for word in ("red", "cat", "house")) >= 2
    assert main(["search", str(trained / "run"), "--query", "german=haus", "english=zzz qqq"]) == 2
    message = "--query must have at least one word of the training texts of view 'english', got 'zzz qqq'."
    assert message in capsys.readouterr().err


def test_evaluation_uses_the_fit_of_the_training(trained, tmp_path):
    """Singular directions of another machine may differ in sign or order."""
    shutil.copytree(trained / "run", tmp_path / "run")
    run = Run(tmp_path / "run")
    tensors = load_file(run.weights)
    tensors["inputs.0.directions"] = -tensors["inputs.0.directions"].flip(0)
    tensors["encoders.0.weight"] = -tensors["encoders.0.weight"].flip(1)
    save_file(tensors, run.weights)
    content = json.loads(run.model.read_text())
    run.model.write_text(json.dumps({**content, "weights": digest(run.weights.read_bytes())}))
    report, _ = evaluate_run(run)
    before = json.loads((trained / "run" / "results.json").read_text())["numbers"]
    assert report.numbers["recall_at_1"] == pytest.approx(before["recall_at_1"])
    data = build_data(run.open(), run)
    torch.testing.assert_close(data.input_tensors[0]["directions"], tensors["inputs.0.directions"])


def test_a_killed_run_ends_with_identical_weights(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "run", tmp_path / "run")
    for name in ("model.safetensors", "model.json", "results.json"):
        (tmp_path / "run" / name).unlink()
    assert main(["train", "--resume", "run"]) == 0
    before, after = (load_file(folder / "run" / "model.safetensors") for folder in (trained, tmp_path))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("part", ["words", "idf", "directions"])
def test_incompatible_parts_are_rejected(trained, tmp_path, part):
    shutil.copytree(trained / "run", tmp_path / "run")
    run = Run(tmp_path / "run")
    content, tensors = json.loads(run.model.read_text()), load_file(run.weights)
    if part == "words":
        content["inputs"][0]["words"][0] = ["nested"]
    else:
        tensors[f"inputs.0.{part}"] = tensors[f"inputs.0.{part}"][..., 1:].contiguous()
        save_file(tensors, run.weights)
    run.model.write_text(json.dumps({**content, "weights": digest(run.weights.read_bytes())}))
    with pytest.raises(ValueError, match="must have words, idf and directions of matching sizes"):
        m3g.load(run.path).embed({"english": "red"})


def test_options_determine_which_texts_are_read_as_tfidf(trained, tmp_path, capsys, error_line):
    table = trained / "texts.csv"
    assert Objects(table).view_kinds == ["tfidf", "tfidf"]
    assert Objects(table, view={"english": {"length": 8}}).view_kinds == ["text", "tfidf"]
    assert Objects(table, encoder="text").view_kinds == ["text", "text"]
    for options, kinds in {
        ("--encoder", "text"): ("text", "text"),
        ("--view.german.width", "32"): ("tfidf", "text"),
        ("--view.german.share", "english", "--view.english.length", "40", "--view.german.length", "40"): (
            "text",
            "text",
        ),
        ("--view.english.encoder", "tfidf"): ("tfidf", "tfidf"),
    }.items():
        assert main(["train", "--table", str(table), *options, "--dry-run"]) == 0
        printed = capsys.readouterr().out
        for name, kind in zip(("english", "german"), kinds):
            assert f"  {name:7}  {kind} " in printed, (options, printed)
    assert "--view.english.encoder transformers --view.english.model sentence-transformers/all-MiniLM-L6-v2" in printed
    content = [{"text": f"a word {i} more", "x": i * i} for i in range(30)]
    other = write_csv(tmp_path, content, "other.csv")
    line = error_line(
        "train", "--table", other, "--view.table.columns", "[x]", "--view.table.encoder", "tfidf", "--dry-run"
    )
    assert "view.table.encoder must suit a view of kind table, got tfidf, which is for text" in line
    for encoder, purpose in {"mlp": "rows of numbers", "linear": "rows of numbers", "conv": "small images"}.items():
        line = error_line("train", "--table", table, "--view.english.encoder", encoder, "--dry-run")
        assert f"must suit a view of kind text, got {encoder}, which is for {purpose}: use text, tfidf, tra" in line
    line = error_line("train", "--table", table, "--view.english.components", "5.5", "--dry-run")
    assert "view.english.components must be a whole number of at least 1, got 5.5." in line


def test_many_texts_are_read_as_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("m3g.data.tables.plan.FEW_TEXTS", 20)
    table = write_csv(tmp_path, [{"text": f"a word {i} more", "x": i * i} for i in range(30)])
    data = Objects(table)
    assert data.view_kinds == ["text", "table"]
    assert data.notes == []


def test_texts_of_one_word_are_read(tmp_path):
    table = write_csv(tmp_path, [{"name": "oak", "note": f"no. {i}"} for i in range(12)], "t.csv")
    data = Objects(table, batch_size=4, view={"name": {"kind": "text"}})
    assert data.view_shapes[0] == (1,)
    assert bool((data.arrays("train")[0][0] == 1).all())
