"""An unreachable hub is reported in one sentence."""

import pytest

from m3g.nets import build_encoder


def test_unreachable_hub_is_one_sentence_with_the_remedy(monkeypatch):
    import transformers

    def refuse(*args, **kwargs):
        raise OSError("We couldn't connect to the hub.\nMore lines")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    spec = {"kind": "transformers", "model": "google/vit-base-patch16-224", "pretrained": True}
    with pytest.raises(ValueError, match="hub is reachable") as caught:
        build_encoder(spec, input_shape=(3, 224, 224))
    assert "\n" not in str(caught.value)
