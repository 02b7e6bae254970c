import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import normalize

from m3g.nets import MLP, EEGEncoder, Head, ModuleEncoder, build_encoder, build_encoders, build_net
from m3g.nets.backbones import TransformersEncoder

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@settings(deadline=None, max_examples=20)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=3), n=st.integers(1, 5), depth=st.integers(1, 3))
def test_mlp_maps_any_sample_shape_to_its_width(shape, n, depth):
    encoder = build_encoder({"kind": "mlp", "width": 12, "depth": depth}, input_shape=shape)
    assert encoder(torch.randn(n, *shape)).shape == (n, encoder.out_features) == (n, 12)
    assert encoder.in_features == math.prod(shape)


def test_the_eeg_stack_matches_the_paper():
    encoder = EEGEncoder()
    convolutions = [part for part in encoder.maps if isinstance(part, nn.Conv1d)]
    assert [part.kernel_size[0] for part in convolutions] == [3, 2, 2, 2, 2, 2, 1]
    assert [part.out_channels for part in convolutions] == [256] * 5 + [64, 64]
    assert [part.num_groups for part in encoder.maps if isinstance(part, nn.GroupNorm)] == [128] * 5 + [32]
    assert [part.p for part in encoder.maps if isinstance(part, nn.Dropout)] == [0.1] * 6
    assert encoder.maps(torch.randn(1, 1, 3000)).shape == (1, 64, 33)
    # A channel given as (n, time) is the same as (n, 1, time).
    encoder.eval()
    signal = torch.randn(2, 1, 300)
    torch.testing.assert_close(encoder(signal), encoder(signal[:, 0]))


def test_the_model_type_vit_is_vit_b16():
    with torch.device("meta"):  # shapes only: the weights need 330 MB
        encoder = build_encoder({"kind": "transformers", "model": "vit"}, input_shape=(3, 224, 224))
    config = encoder.backbone.config
    assert (config.hidden_size, config.num_hidden_layers, config.patch_size) == (768, 12, 16)
    assert (config.image_size, encoder.out_features) == (224, 768)
    assert sum(part.numel() for part in encoder.parameters()) == 85_798_656


def test_image_models_take_the_size_of_the_data_and_leave_no_parameter_unused():
    encoder = build_encoder(
        {"kind": "transformers", "model": "vit", "config": {**SMALL, "patch_size": 8}}, input_shape=(3, 32, 32)
    )
    out = encoder(torch.randn(2, 3, 32, 32))
    assert out.shape == (2, 16)
    out.sum().backward()
    assert all(part.grad is not None for part in encoder.parameters())


def test_text_model_ignores_padding():
    config = {**SMALL, "vocab_size": 20, "max_position_embeddings": 16, "pad_token_id": 0}
    encoder = build_encoder({"kind": "transformers", "model": "bert", "config": config}, input_shape=(6,)).eval()
    short = torch.tensor([[5, 7, 9]])
    padded = torch.tensor([[5, 7, 9, 0, 0, 0]])
    torch.testing.assert_close(encoder(short), encoder(padded), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "pool"), [("vit", "cls"), ("dinov2", "cls"), ("swin", "mean"), ("bert", "mean"), ("wav2vec2", "mean")]
)
def test_only_models_with_a_class_token_are_pooled_there(model, pool):
    with torch.device("meta"):
        assert TransformersEncoder(model).pool == pool


@pytest.mark.parametrize("shape", [(16,), (1, 16)])
def test_a_model_of_images_rejects_rows_of_numbers(shape):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32}
    with pytest.raises(ValueError, match=r"transformers 'vit' must accept inputs of the view's shape \("):
        build_encoder({"kind": "transformers", "config": small}, input_shape=shape)


def test_maps_are_averaged():
    config = {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1], "layer_type": "basic"}
    encoder = build_encoder({"kind": "transformers", "model": "resnet", "config": config}, input_shape=(3, 32, 32))
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, encoder.out_features) == (2, 12)


def test_local_folder_gives_pretrained_weights(tmp_path):
    import transformers

    saved = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=32), add_pooling_layer=False)
    saved.save_pretrained(tmp_path)
    spec = {"kind": "transformers", "model": str(tmp_path), "pretrained": True}
    encoder = build_encoder(spec, input_shape=(3, 32, 32))
    for name, value in saved.state_dict().items():
        torch.testing.assert_close(encoder.backbone.state_dict()[name], value)


def test_unreachable_hub_is_one_sentence_with_the_remedy(monkeypatch):
    import transformers

    def refuse(*args, **kwargs):
        raise OSError("We couldn't connect to the hub.\nMore lines")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    spec = {"kind": "transformers", "model": "google/vit-base-patch16-224", "pretrained": True}
    with pytest.raises(ValueError, match="hub is reachable") as caught:
        build_encoder(spec, input_shape=(3, 224, 224))
    assert "\n" not in str(caught.value)


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
        (
            {"class_path": "torch.nn.Linear", "init_args": {"in_features": 3, "out_features": 2}},
            "inputs of the view's shape",
        ),
    ],
)
def test_invalid_encoders_are_errors(spec, words):
    with pytest.raises(ValueError, match=words):
        build_encoder(spec, input_shape=(7,))


def test_class_path_outside_the_known_packages_needs_trust():
    path = "torch.ao.nn.qat.Linear"
    with pytest.raises(ValueError, match="trust=True"):
        build_encoder({"class_path": path}, input_shape=(3,))
    with pytest.raises(ValueError, match="importable class"):
        build_encoder({"class_path": "no_such_package.Net"}, input_shape=(3,), trust=True)


def test_a_custom_module_is_an_encoder():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    encoder = build_encoder(module, input_shape=(1, 5, 5))
    assert isinstance(encoder, ModuleEncoder)
    assert encoder.out_features == 2 * 9
    assert encoder.training
    # Determining the width does not change the running statistics.
    assert module[1].num_batches_tracked == 0


def test_shared_needs_one_shape_and_separate_encoders_share_nothing():
    with pytest.raises(ValueError, match="views must have one shape with shared=True"):
        build_encoders("mlp", view_shapes=[(3,), (4,)], shared=True)
    assert len(build_encoders("mlp", view_shapes=[(3,), (3,)], shared=True)) == 1
    first, second = build_encoders(MLP(3), view_shapes=[(3,), (3,)])
    assert first is not second


def test_heads_follow_the_paper():
    head = Head(768, hidden=4096, out_features=256)
    assert [type(part).__name__ for part in head.layers] == ["Linear", "GELU", "Linear", "LayerNorm"]
    assert [tuple(part.shape) for part in head.parameters() if part.ndim == 2] == [(4096, 768), (256, 4096)]
    assert [type(part).__name__ for part in Head(256, hidden=None, out_features=32).layers] == ["Linear"]


def test_heads_start_from_truncated_normal_weights():
    torch.manual_seed(0)
    head = Head(64, hidden=256, out_features=32, weight_std=0.02)
    linear = [layer for layer in head.layers if isinstance(layer, torch.nn.Linear)]
    for layer in linear:
        assert float(layer.weight.detach().abs().max()) <= 0.04
        assert 0.015 < float(layer.weight.detach().std()) < 0.02
        assert not bool(layer.bias.detach().any())
    with pytest.raises(ValueError, match="weight_std"):
        Head(4, weight_std=0.0)


@pytest.mark.parametrize("hidden", [None, 16])
def test_a_common_bias_starts_all_views_in_one_half_space(hidden):
    torch.manual_seed(0)
    shapes = [(5,), (9,), (3,)]
    views = [torch.randn(20, *shape) for shape in shapes]

    def smallest_cosine(**options):
        z = normalize(build_net(shapes, projector={"hidden": hidden, **options})(views), dim=-1)
        return torch.einsum("lnd,mnd->lmn", z, z).min()

    assert smallest_cosine() < 0
    assert smallest_cosine(bias=2.0) > 0.3
    net = build_net([(3,), (4,)], predictor={})
    assert net.predictor.in_features == net.predictor.out_features == 64


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_text_ignores_padding_and_takes_an_empty_text(dtype):
    encoder = build_encoder({"kind": "text", "width": 16, "heads": 2}, input_shape=(24,)).eval()
    text = torch.zeros(3, 24, dtype=dtype)
    text[0, :9] = torch.tensor(list("süßer".encode() + b"??"))
    text[1, :9], text[1, 9:] = text[0, :9], 0
    found = encoder(text)
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(encoder(text[:, :12])[0], found[0])  # less padding, the same text
    assert not torch.allclose(found[0], found[2])


def test_spectrogram_separates_pitches_and_takes_short_sounds():
    time = torch.arange(4000) / 8000
    low, high = (torch.sin(2 * torch.pi * pitch * time) for pitch in (200, 2000))
    encoder = build_encoder({"kind": "spectrogram", "rate": 8000, "channels": [8]}, input_shape=(4000,)).eval()
    found = encoder(torch.stack([low, low, high, torch.zeros(4000)]))
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2], atol=0.1)
    assert bool(torch.isfinite(encoder(torch.zeros(2, 10))).all())


def test_images_may_have_their_channels_first_last_or_none():
    image = torch.rand(2, 3, 16, 16)
    spec = {"kind": "conv", "channels": [8]}
    torch.manual_seed(0)
    first = build_encoder(spec, input_shape=(3, 16, 16))
    torch.manual_seed(0)
    last = build_encoder(spec, input_shape=(16, 16, 3))
    torch.testing.assert_close(last(image.movedim(1, -1)), first(image))
    assert build_encoder(spec, input_shape=(16, 16))(image[:, 0]).shape == (2, 8)
    assert build_encoder({"kind": "vit", "width": 12, "depth": 1, "patch": 8}, input_shape=(16, 16))(
        image[:, 0]
    ).shape == (2, 12)


def test_views_have_their_own_encoders_share_them_or_freeze_them():
    specs = [{"kind": "mlp", "width": 8}, {"share": 0}, {"kind": "mlp", "width": 4, "dropout": 0.5, "frozen": True}]
    net = build_net([(3,), (3,), (5,)], encoder=specs)
    assert net.encoders[1] is net.encoders[0]
    assert net.projectors[1] is net.projectors[0]
    net.train()
    assert net.encoders[0].training
    assert not net.encoders[2].training
    net([torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 5)]).sum().backward()
    assert all(p.grad is None for p in net.encoders[2].parameters())
    assert all(p.grad is not None for p in net.encoders[0].parameters())
    again = build_net([(3,), (3,), (5,)], encoder=specs)
    again.load_state_dict(net.state_dict())
    with pytest.raises(ValueError, match="share must be an earlier view of the same shape"):
        build_net([(3,), (4,)], encoder=[{"kind": "mlp"}, {"share": 0}])
