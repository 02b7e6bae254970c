"""Options of encoders, and invalid descriptions."""

import pytest

from m3g.nets import build_encoder, registry


def test_the_listed_options_can_be_set():
    assert registry.options("transformers") == ["model", "pretrained", "config", "pool"]
    assert "rate" not in registry.options("spectrogram")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resmlp", "encoder must be one of 'conv', 'eeg', 'linear', 'mlp', 'residual', 'spectrogram', 'text', "),
        ({"kind": "mlp", "breadth": 3}, "breadth"),
        ({"kind": "mlp", "width": "wide"}, "width must be a whole number, got 'wide'"),
        ({"kind": "mlp", "dropout": -1}, "dropout must be a number from 0"),
        ({"kind": "eeg", "dropout": 2.0}, "dropout must be a number from 0"),
        ({"kind": "eeg", "kernels": 3}, "kernels must be a list of whole numbers, got 3"),
        ({"kind": "transformers", "config": 5}, "config must be a mapping of names to values or null, got 5"),
        ({"kind": "transformers", "config": {"num_hidden_layer": 2}}, r"num_hidden_layers, .*got 'num_hidden_layer'"),
        ({"kind": "transformers", "config": {"hidden_size": "big"}}, "values with which 'vit' can be built"),
        ({"kind": "transformers", "model": "no-such"}, "known to transformers"),
        ({"kind": "transformers", "model": "vit", "pretrained": True}, "name on the hub"),
        ({"class_path": "os.system"}, "trust=True"),
        ({"class_path": "torch.nnx.Linear"}, "trust=True"),
        ({"class_path": "torch.nn.functional.relu"}, "subclass of torch.nn.Module"),
        ({"class_path": "torch.nn.Nothing"}, "importable class"),
        ("conv", r"encoder conv must accept inputs of the view's shape \(7,\)"),
        ({"kind": "linear", "in_features": 3}, "encoder linear must accept inputs of the view's shape"),
        (
            {"class_path": "torch.nn.Linear", "init_args": {"in_features": 3, "out_features": 2}},
            "inputs of the view's shape",
        ),
    ],
)
def test_invalid_encoders_are_errors(spec, words):
    with pytest.raises(ValueError, match=words):
        build_encoder(spec, input_shape=(7,))
