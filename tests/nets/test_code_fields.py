"""Untrusted configurations cannot make transformers download or execute code."""

import json

import pytest
import transformers

from m3g.nets import build_encoder
from m3g.nets.code_fields import reject_code

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "intermediate_size": 32}
CODE = {
    "_attn_implementation": "owner/repo",
    "attn_implementation": "owner/repo@main:function",
    "_attn_implementation_internal": "paged|owner/repo",
    "_experts_implementation": "owner/repo",
    "auto_map": {"AutoModel": "owner/repo--model.Evil"},
    "custom_pipelines": {"p": {"impl": "p.P"}},
    "trust_remote_code": True,
    "use_kernels": True,
    "kernel_config": {"kernel_mapping": {"RMSNorm": "owner/repo:RMSNorm"}},
    "quantization_config": {"quant_method": "other"},
}


@pytest.fixture
def no_hub(monkeypatch):
    """Make the construction of a model raise: settings must be rejected before it."""

    def reached(*args, **kwargs):
        raise AssertionError("transformers was reached")

    monkeypatch.setattr(transformers.AutoModel, "from_config", reached)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", reached)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", reached)


@pytest.mark.parametrize("field", CODE)
@pytest.mark.parametrize("nested", [False, True])
def test_a_field_with_code_is_an_error_without_trust(tmp_path, no_hub, field, nested):
    fields = {"text_config": [{field: CODE[field]}]} if nested else {field: CODE[field]}
    message = f"download or run code, got {field} = .*--trust"
    with pytest.raises(ValueError, match=message):
        build_encoder({"kind": "transformers", "model": "vit", "config": {**SMALL, **fields}}, input_shape=(3, 32, 32))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", **SMALL, **fields}))
    for pretrained in (False, True):
        spec = {"kind": "transformers", "model": f"{tmp_path}/", "pretrained": pretrained}
        with pytest.raises(ValueError, match=message):
            build_encoder(spec, input_shape=(3, 32, 32))


@pytest.mark.parametrize("options", [{"trust": True}, {"trust": False}])
def test_a_settings_file_cannot_set_trust(options):
    for spec in (
        {"kind": "transformers", "model": "vit", **options},
        {"class_path": "m3g.nets.backbones.TransformersEncoder", "init_args": options},
    ):
        with pytest.raises(ValueError, match="must not contain trust"):
            build_encoder(spec, input_shape=(3, 32, 32))


def test_plain_values_without_code_are_accepted():
    reject_code({"_attn_implementation": "sdpa", "auto_map": {}, "use_kernels": False, "_name_or_path": "owner/repo"})
    spec = {"kind": "transformers", "model": "vit", "config": {**SMALL, "attn_implementation": "eager"}}
    with pytest.raises(ValueError, match="fields of the model's configuration"):  # an argument, not a field
        build_encoder(spec, input_shape=(3, 32, 32))


def test_trust_reaches_transformers(no_hub):
    spec = {"kind": "transformers", "model": "vit", "config": {**SMALL, "_attn_implementation": "owner/repo"}}
    with pytest.raises(ValueError, match="transformers was reached"):
        build_encoder(spec, input_shape=(3, 32, 32), trust=True)
