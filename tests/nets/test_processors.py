"""Pretrained models define tokenizer, image size and scale, and sample rate; built here, without a hub."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import m3g
from animals import rows, write_csv
from hub_server import fake_hub
from m3g.cli import main
from m3g.data import Objects
from m3g.nets import processor_of
from m3g.nets.processors import image_settings

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "owl", "über"]
PAD = 4  # not 0, so that code that assumes 0 for padding fails
QUICK = [
    "--data_options.batch_size", "8", "--loop.max_steps", "3", "--loop.evaluate_every", "0",
    "--loop.accelerator", "cpu",
    "--heads.hidden", "8", "--heads.embedding_size", "8", "--data_options.ignore", "[home, sound, vector, age, colour]",
]  # fmt: skip


def save_text_model(folder):
    order = [*WORDS[1:5], "[PAD]", *WORDS[5:]]
    assert order.index("[PAD]") == PAD
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(order)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(word, order.index(word)) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=12,
    )  # fmt: skip
    wrapped.save_pretrained(folder)
    config = transformers.BertConfig(
        **SMALL, vocab_size=len(order), max_position_embeddings=12, pad_token_id=PAD, hidden_dropout_prob=0.0
    )
    transformers.BertModel(config).save_pretrained(folder)
    return order


def save_image_model(folder):
    config = transformers.ViTConfig(**SMALL, image_size=24, patch_size=8)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    settings = {
        "image_processor_type": "ViTImageProcessor", "do_normalize": True, "do_rescale": True,
        "rescale_factor": 1 / 255, "size": {"height": 24, "width": 24},
        "image_mean": [0.5] * 3, "image_std": [0.25] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Folders of two small models, a table of photos and captions, and the words of the tokenizer."""
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "see").mkdir()
    order = save_text_model(folder / "read")
    save_image_model(folder / "see")
    content = rows(folder, 40)
    return folder, write_csv(folder, content), content, order


def options(folder):
    words = []
    for view, model in (("photo", "see"), ("caption", "read")):
        words += [f"--view.{view}.encoder", "transformers", f"--view.{view}.model", str(folder / model)]
        words += [f"--view.{view}.pretrained", "true"]
    return words


def test_columns_are_read_as_the_models_require(pretrained):
    folder, table, content, order = pretrained
    models = (("photo", "see"), ("caption", "read"))
    view = {name: {"processor": processor_of(str(folder / model))} for name, model in models}
    ignore = ["home", "sound", "vector", "age", "colour", "kind"]
    data = Objects(table, view=view, ignore=ignore, batch_size=4, val=0.0, test=0.0)
    assert data.view_shapes == [(3, 24, 24), (8,)]
    (images, tokens), mask, _ = data.arrays("train")
    for row, entry in enumerate(content):
        if entry["caption"] is not None:
            kind = entry["caption"].split()[1]
            expected = ["[CLS]", "a", kind, "über", "[UNK]", "[SEP]", "[PAD]", "[PAD]"]
            assert tokens[row].tolist() == [order.index(word) for word in expected]
    first = next(row for row, entry in enumerate(content) if entry["photo"] is not None)
    with Image.open(folder / content[first]["photo"]) as image:
        middle = image.resize((24, 24), Image.Resampling.BICUBIC, box=(2, 0, 22, 20))
    pixels = torch.from_numpy(np.array(middle)).permute(2, 0, 1) / 255
    torch.testing.assert_close(images[first], (pixels - 0.5) / 0.25)
    assert not mask.all()


def test_truncated_texts_keep_the_last_special_token(pretrained):
    folder, _, _, order = pretrained
    view = {"caption": {"length": 4, "processor": processor_of(f"{folder}/read")}}
    table = write_csv(folder, [{"caption": f"a cat a dog {i}", "n": i * i} for i in range(9)], "long.csv")
    (tokens, _), _, _ = Objects(table, view=view, batch_size=4, val=0.0, test=0.0).arrays("train")
    assert tokens[0].tolist() == [order.index(word) for word in ("[CLS]", "a", "cat", "[SEP]")]


def test_a_run_does_not_require_the_folders_of_its_models(pretrained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder, table, _, _ = pretrained
    for name in ("see", "read"):
        shutil.copytree(folder / name, tmp_path / name)
    run = tmp_path / "run"
    columns = ["--table", str(table), "--labels", "kind"]
    assert main(["train", *columns, *QUICK, *options(tmp_path), "--out", str(run)]) == 0
    lines = capsys.readouterr().out
    assert "caption  text 8, encoder transformers" in lines
    assert "photo    image 3x24x24, encoder transformers" in lines
    assert main(["evaluate", str(run)]) == 0
    captions = ["a cat über 3", None, "an unknown dog of very many words that do not fit"]
    expected = m3g.load(run).embed({"caption": captions, "photo": [None, str(folder / "1.png"), None]})
    for name in ("see", "read"):
        shutil.rmtree(tmp_path / name)
    loaded = m3g.load(run).embed({"caption": captions, "photo": [None, str(folder / "1.png"), None]})
    assert torch.equal(loaded.embeddings, expected.embeddings)
    assert loaded.mask.tolist() == [[False, True, False], [True, False, True]]
    assert main(["evaluate", str(run)]) == 2
    assert "model must be a model on the hub or a local folder" in capsys.readouterr().err


def test_all_views_may_use_one_model(pretrained, tmp_path, capsys):
    folder, _, _, _ = pretrained
    content = [{"one": f"a cat {i}", "two": f"a dog {i} über"} for i in range(20)]
    table = write_csv(tmp_path, content)
    words = ["--encoder", "transformers", "--encoder_options.model", str(folder / "read"), "--view.two.length", "8"]
    command = ["train", "--table", str(table), *QUICK[:-2], *words, "--out", str(tmp_path / "run")]
    assert main(command) == 0, capsys.readouterr().err
    inputs = json.loads((tmp_path / "run" / "model.json").read_text())["inputs"]
    assert [entry["processor"]["pad"] for entry in inputs] == [PAD, PAD]


def test_a_text_model_without_a_tokenizer_is_reported(pretrained, tmp_path, error_line, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder, table, _, _ = pretrained
    shutil.copytree(folder / "see", tmp_path / "see")
    words = ["--view.caption.encoder", "transformers", "--view.caption.model", tmp_path / "see"]
    words += ["--out", tmp_path / "run"]
    line = error_line("train", "--table", table, "--labels", "kind", *QUICK, *words)
    assert "view.caption.model must have a tokenizer next to its weights, got none" in line
    line = error_line(
        "train", "--table", table, "--labels", "kind", *QUICK, *words[:3], f"{tmp_path}/no/such", *words[4:]
    )
    assert "model must be a model on the hub or a local folder" in line


def test_a_file_that_cannot_be_downloaded_is_not_a_missing_file(pretrained, tmp_path, monkeypatch):
    folder, _, _, _ = pretrained
    with fake_hub(monkeypatch, tmp_path / "hf") as server:
        for name in ("see", "read"):
            server.commit(f"me/{name}", {file.name: file.read_bytes() for file in (folder / name).iterdir()})
        assert "size" in processor_of("me/see")
        server.failing_files = {"tokenizer.json"}
        with pytest.raises(ValueError, match=r"^model must be .*, got 'me/read' \(tokenizer\.json: .*\): .*\.$"):
            processor_of("me/read")
        server.failing_files = set()
        assert processor_of("me/read")["pad"] == PAD
        with pytest.raises(ValueError, match=r"^model must be .*, got 'me/none' \(config\.json: .*\): .*\.$"):
            processor_of("me/none")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "size" in processor_of("me/see")  # offline, the downloaded files are read
    with pytest.raises(ValueError, match=r"^model must be .*, got 'me/none' \(there is no config\.json\): .*\.$"):
        processor_of("me/none")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"size": 32}, {"size": 32}),
        ({"size": {"shortest_edge": 40}, "do_center_crop": False, "crop_size": {"height": 32}}, {"size": 40}),
        (
            {"size": 9, "image_mean": [1], "image_std": [1], "do_normalize": False},
            {"size": 9, "mean": [0] * 3, "std": [1] * 3},
        ),
        (
            {"size": 9, "image_mean": [0.5], "image_std": [0.5], "rescale_factor": 2 / 255},
            {"size": 9, "mean": [0.25], "std": [0.25]},
        ),
        ({"sampling_rate": 8000, "size": 3}, {}),
    ],
)  # fmt: skip
def test_image_settings_are_read_in_every_form(settings, expected):
    assert image_settings(settings) == expected


def test_an_audio_model_determines_rate_and_scale(pretrained, tmp_path):
    _, table, _, _ = pretrained
    save = tmp_path / "hear"
    save.mkdir()
    transformers.Wav2Vec2Config(hidden_size=16).save_pretrained(save)
    (save / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": 4000, "do_normalize": True}))
    processor = processor_of(str(save))
    ignore = ["home", "photo", "age", "colour", "kind", "caption"]
    view = {"sound": {"processor": processor, "seconds": 0.2}}
    data = Objects(table, view=view, ignore=ignore, batch_size=4, val=0.0, test=0.0)
    assert data.view_shapes[0] == (800,)
    (sounds, _), mask, _ = data.arrays("train")
    torch.testing.assert_close(sounds[mask[0]].std(1, correction=0), torch.ones(int(mask[0].sum())), atol=1e-3, rtol=0)
