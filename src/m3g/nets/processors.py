"""Preprocessing of pretrained models: tokenizer, size and scaling of images, sample rate of sounds.

The settings are read from the model's files as plain values and stored in the run, so that new data can be
preprocessed in the same way without these files.
"""

from __future__ import annotations

import json
from pathlib import Path

from m3g import _checks
from m3g._options import Options, Processor
from m3g.nets import hub

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
MAX_TOKENS = 1_000_000  # transformers represents an unknown maximum by a larger number


def processor_of(model: str) -> Processor:
    """Return the preprocessing settings of a model, and the name of the model under `model`.

    For text: `tokenizer` (the JSON of a tokenizer of the library `tokenizers`), `pad` (the id of its padding token) and
    `longest` (the maximum number of tokens). For images: `size`, `mean` and `std`. For sounds: `rate` (samples per
    second) and `normalize` (whether every sound is scaled to mean 0 and variance 1).

    Args:
        model: a name on the hub or a local folder.
    """
    offline = not (Path(model).is_dir() or hub.reachable())
    if _file(model, "config.json", offline) is None:
        raise _unreadable(model, "there is no config.json")
    processor: Processor = {"model": model}
    if any(_file(model, name, offline) is not None for name in TOKENIZERS):
        processor.update(_text_settings(model, offline))
    for name in ("processor_config.json", "preprocessor_config.json"):
        file = _file(model, name, offline)
        if file is not None:
            content = json.loads(file.read_text(encoding="utf-8"))
            # A processor for several kinds of input has an entry for each kind.
            kinds = ("image_processor", "feature_extractor")
            for part in (content, *(content[kind] for kind in kinds if content.get(kind))):
                processor.update(image_settings(part))
                processor.update(_sound_settings(part))
    return processor


def _file(model: str, name: str, offline: bool) -> Path | None:
    """Return the path of a file of the model, or None if the model has no such file; raise if the download fails.

    Offline, the model consists of the files that are already downloaded.
    """
    if Path(model).is_dir():
        return Path(model, name) if Path(model, name).is_file() else None
    client = _checks.extra("huggingface_hub", "train")
    errors = _checks.extra("huggingface_hub.errors", "train")
    try:
        return Path(client.hf_hub_download(model, name, local_files_only=offline))
    except Exception as error:  # the error types of failed connections depend on the client's version
        # A failed connection raises a subclass of the error for a file that does not exist.
        failed = isinstance(error, errors.LocalEntryNotFoundError) and not offline
        if isinstance(error, errors.EntryNotFoundError) and not failed:
            return None
        raise _unreadable(model, f"{name}: {_reason(error)}") from error


def _unreadable(model: str, reason: str) -> ValueError:
    return ValueError(
        f"model must be a model on the hub or a local folder, got {model!r} ({reason}): check the name and that the "
        "hub is reachable, or give the path of a local folder."
    )


def _reason(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if there is none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _text_settings(model: str, offline: bool) -> Processor:
    """Return the tokenizer, the padding token and the maximum number of tokens of a model."""
    transformers = _checks.extra("transformers", "train")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False, local_files_only=offline)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"model must have a tokenizer that can be loaded, got {model!r} ({_reason(error)})."
        ) from error
    if not hasattr(tokenizer, "backend_tokenizer") or tokenizer.pad_token_id is None:
        raise ValueError(
            "model must have a tokenizer of the library tokenizers with a padding token, which "
            f"{model!r} does not have: choose another model, or the encoder 'text'."
        )
    text: Processor = {"tokenizer": tokenizer.backend_tokenizer.to_str(), "pad": int(tokenizer.pad_token_id)}
    if tokenizer.model_max_length <= MAX_TOKENS:
        text["longest"] = int(tokenizer.model_max_length)
    return text


def image_settings(content: Options) -> Processor:
    """Return the size, mean and standard deviation for images in [0, 1], from the settings of an image processor.

    Example:
        >>> image_settings({"size": {"shortest_edge": 256}, "crop_size": 224, "image_mean": [0.5], "image_std": [0.25]})
        {'size': 224, 'mean': [0.5], 'std': [0.25]}
    """
    if "size" not in content or "sampling_rate" in content:
        return {}
    sides = content.get("crop_size") if content.get("do_center_crop", True) else None
    sides = sides or content["size"]
    side = sides if isinstance(sides, int) else sides.get("shortest_edge") or sides.get("height")
    images: Processor = {} if side is None else {"size": int(side)}
    if "image_mean" in content and "image_std" in content:
        factor = 255 * content.get("rescale_factor", 1 / 255) if content.get("do_rescale", True) else 255
        scaled = content.get("do_normalize", True)
        mean, std = (content["image_mean"], content["image_std"]) if scaled else ([0.0] * 3, [1.0] * 3)
        images["mean"], images["std"] = [value / factor for value in mean], [value / factor for value in std]
    return images


def _sound_settings(content: Options) -> Processor:
    if "sampling_rate" not in content:
        return {}
    return {"rate": int(content["sampling_rate"]), "normalize": bool(content.get("do_normalize", False))}
