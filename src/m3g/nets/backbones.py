"""External encoders: any model of `transformers`, and any `nn.Module` by class path."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g._options import Options
from m3g.nets import hub
from m3g.nets.code_fields import reject_code

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

FITTED = ("image_size", "num_channels")  # fields set from the data; not every model has them
TRUSTED_PACKAGES = ("m3g", "torch.nn", "transformers")


class TransformersEncoder(nn.Module):
    """Image, text or audio model of `transformers`, pooled to one vector per input.

    Args:
        model: a model type (`"vit"` for ViT-B/16, `"bert"`, `"wav2vec2"`, `"resnet"`, …), a name on the hub, or a local
            folder. Names and folders must contain a slash. For these, the columns of a table are preprocessed with the
            model's tokenizer, image size and scaling, or sample rate.
        pretrained: whether to load the weights of the model; only for a name on the hub or a local folder.
        config: fields of the model's configuration to change, such as `{"num_hidden_layers": 4}`.
        pool: `"cls"` for the first token, `"mean"` for the mean of all tokens except padding of texts. The default is
            the first token if the model has a parameter for a class token (ViT), and the mean otherwise (BERT, whose
            class token is part of the vocabulary). Feature maps (n, c, h, w) are always averaged over h and w.
        trust: allow configurations with fields that make transformers download or run code, such as an
            `attn_implementation` from the hub. Python files of a model's repository are never executed.

    Example:
        >>> import torch
        >>> small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32}
        >>> encoder = TransformersEncoder("vit", config=small)
        >>> encoder(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 32])
    """

    def __init__(
        self,
        model: str = "vit",
        *,
        pretrained: bool = False,
        config: Options | None = None,
        pool: str | None = None,
        trust: bool = False,
    ):
        super().__init__()
        self.backbone = _load(model, pretrained, config or {}, trust=trust)
        # An unused pooler would have parameters without a gradient, which DDP rejects.
        pooler = getattr(self.backbone, "pooler", None)
        if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
            self.backbone.register_module("pooler", None)
        self.input_name: str = self.backbone.main_input_name
        names = [name for name, _ in self.backbone.named_parameters()]
        has_class_token = any(name.endswith(("cls_token", "class_embedding")) for name in names)
        self.pool = pool or ("cls" if has_class_token else "mean")
        _checks.one_of("pool", self.pool, ("cls", "mean"))
        settings = self.backbone.config
        sizes = getattr(settings, "hidden_sizes", None)
        self.out_features = int(sizes[-1] if sizes else settings.hidden_size)

    def forward(self, view: Tensor) -> Tensor:
        keep: Tensor | None = None
        hidden: Tensor
        if self.input_name == "input_ids":
            view = view.long()
            keep = torch.ne(view, self.backbone.config.pad_token_id or 0)
            # Attention over no token may be NaN, so the first token is always kept.
            keep = keep | (torch.arange(view.shape[1], device=view.device) == 0)
            hidden = self.backbone(input_ids=view, attention_mask=keep.long()).last_hidden_state
        else:
            hidden = self.backbone(**{self.input_name: view}).last_hidden_state
        if hidden.ndim == 4:
            return hidden.mean((-2, -1))
        if self.pool == "cls":
            return hidden[:, 0]
        if keep is None:
            return hidden.mean(1)
        weight = keep.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)


class ViT(TransformersEncoder):
    """Vision transformer with random weights, for images (n, channels, size, size).

    Args:
        size: side of the images.
        in_channels: 1 for grey images, 3 for colour.
        width: features of a token and of the output.
        depth: number of layers.
        heads: attention heads per layer, a divisor of the width.
        patch: side of the square patches.

    Example:
        >>> ViT(size=32, width=48, depth=1, heads=3, patch=8)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 48])
    """

    def __init__(
        self,
        *,
        size: int = 224,
        in_channels: int = 3,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        patch: int = 16,
    ):
        config = {
            "image_size": size,
            "num_channels": in_channels,
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": heads,
            "patch_size": patch,
        }
        super().__init__("vit", config=config)


def _load(model: str, pretrained: bool, changes: Options, *, trust: bool) -> PreTrainedModel:
    """Return a model with changes to its configuration, and with random weights unless `pretrained`."""
    transformers = _checks.extra("transformers", "train")
    if not trust:
        reject_code(changes)
    if "/" not in model:
        if pretrained:
            raise ValueError(
                f"model must contain a slash (a name on the hub or a local folder) if pretrained=True, got {model!r}."
            )
        if model not in transformers.CONFIG_MAPPING:
            raise ValueError(
                f"model must be a model type known to transformers, such as 'vit', 'bert' or 'wav2vec2', got {model!r}."
            )
        _check_fields(transformers.AutoConfig.for_model(model), changes)
        try:
            config = transformers.AutoConfig.for_model(model, **changes)
            return transformers.AutoModel.from_config(config, trust_remote_code=False)
        except Exception as error:  # models raise various errors for invalid configurations
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"config must be values with which {model!r} can be built, got {changes} ({reason})."
            ) from error
    # Offline, only earlier downloads are available.
    source = {"trust_remote_code": False, "local_files_only": not (Path(model).is_dir() or hub.reachable())}
    if not trust:
        _reject_stored_code(model, local_files_only=source["local_files_only"])
    try:
        _check_fields(transformers.AutoConfig.from_pretrained(model, **source), changes)
        config = transformers.AutoConfig.from_pretrained(model, **source, **changes)
        if not pretrained:
            return transformers.AutoModel.from_config(config, trust_remote_code=False)
        return transformers.AutoModel.from_pretrained(model, config=config, use_safetensors=True, **source)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"model must be a model on the hub or a local folder, got {model!r} ({reason.rstrip('.')}): check the name "
            "and that the hub is reachable, give the path of a local folder, or use a model type with pretrained=False."
        ) from error


def _reject_stored_code(model: str, *, local_files_only: bool) -> None:
    """Reject a stored configuration that refers to code, before anything is built from it."""
    transformers = _checks.extra("transformers", "train")
    try:
        stored, _ = transformers.PretrainedConfig.get_config_dict(model, local_files_only=local_files_only)
    except (OSError, ValueError):
        return  # reported when the configuration is loaded
    reject_code(stored, name=f"the configuration of {model!r}")


def _check_fields(config: PretrainedConfig, changes: Options) -> None:
    """Reject fields that the configuration does not have; transformers would store and ignore them."""
    unknown = sorted(name for name in changes if not hasattr(config, name) and name not in FITTED)
    if unknown:
        known = sorted(config.to_dict())
        raise ValueError(
            f"config must be fields of the model's configuration ({', '.join(known)}), got {unknown[0]!r}."
        )


def import_module_class(class_path: str, *, trust: bool = False) -> type[nn.Module]:
    """Return the `nn.Module` subclass at a dotted path; outside `TRUSTED_PACKAGES` only with `trust=True`.

    Example:
        >>> import_module_class("torch.nn.Linear").__name__
        'Linear'
    """
    package, _, name = class_path.rpartition(".")
    if not trust and not any(f"{package}.".startswith(f"{known}.") for known in TRUSTED_PACKAGES):
        raise ValueError(
            f"class_path must be a class of {', '.join(TRUSTED_PACKAGES)}, got {class_path!r}: "
            "pass trust=True (--trust) if you trust its code."
        )
    try:
        module_class = getattr(importlib.import_module(package), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"class_path must be the path of an importable class, got {class_path!r}.") from error
    if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
        raise ValueError(f"class_path must be a subclass of torch.nn.Module, got {class_path!r}.")
    return module_class


def output_width(encoder: nn.Module, input_shape: Sequence[int], *, name: str) -> int:
    """Return the number of features that an encoder returns for a sample shape, from a forward pass on two samples."""
    training = encoder.training
    encoder.eval()
    try:
        with torch.no_grad():
            return int(encoder(torch.zeros(2, *input_shape)).shape[-1])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(
            f"encoder {name} must accept inputs of the view's shape {tuple(input_shape)}, "
            f"got an error ({(str(error).splitlines() or [type(error).__name__])[0]})."
        ) from error
    finally:
        encoder.train(training)


class ModuleEncoder(nn.Module):
    """Encoder from any module, whose output is flattened to (n, width).

    A forward pass on samples of shape `input_shape` determines the width. If the module returns a model output of
    transformers, its first token is used.

    Example:
        >>> ModuleEncoder(nn.Conv1d(1, 4, 3), (1, 10)).out_features
        32
    """

    def __init__(self, module: nn.Module, input_shape: Sequence[int]):
        super().__init__()
        self.module = module
        self.out_features = output_width(self, input_shape, name=type(module).__name__)

    def forward(self, view: Tensor) -> Tensor:
        out = self.module(view)
        features: Tensor = out if isinstance(out, Tensor) else out.last_hidden_state[:, 0]
        return features.flatten(1)
