"""Models of transformers and modules by class path as encoders."""

import pytest
import torch
from torch import nn

from m3g.nets import ModuleEncoder, build_encoder
from m3g.nets.backbones import TransformersEncoder

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_the_model_type_vit_is_vit_b16():
    with torch.device("meta"):  # shapes only: the weights need 330 MB
        encoder = build_encoder({"kind": "transformers", "model": "vit"}, input_shape=(3, 224, 224))
    config = encoder.backbone.config
    assert (config.hidden_size, config.num_hidden_layers, config.patch_size) == (768, 12, 16)
    assert (config.image_size, encoder.out_features) == (224, 768)
    assert sum(part.numel() for part in encoder.parameters()) == 85_798_656


def test_image_models_have_the_input_size_of_the_data_and_no_unused_parameter():
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
def test_only_models_with_a_class_token_are_pooled_at_it(model, pool):
    with torch.device("meta"):
        assert TransformersEncoder(model).pool == pool


@pytest.mark.parametrize("shape", [(16,), (1, 16)])
def test_a_model_of_images_rejects_rows_of_numbers(shape):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32}
    with pytest.raises(ValueError, match=r"transformers 'vit' must accept inputs of the view's shape \("):
        build_encoder({"kind": "transformers", "config": small}, input_shape=shape)


def test_feature_maps_are_averaged():
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


def test_a_class_path_outside_the_known_packages_requires_trust():
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
