"""Storage of a trained network as two files that are safe to read: `model.safetensors` and `model.json`."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from
from safetensors.torch import save as bytes_of
from torch import Tensor

from m3g.data.storage.limits import check_safetensors
from m3g.data.tables.reader import Recipe
from m3g.nets import MultiViewNet, build_net
from m3g.training.runs.files import atomic, write_json
from m3g.training.runs.folder import Run
from m3g.training.runs.trained import Scale, TrainedNet
from m3g.training.settings.config import Config
from m3g.training.settings.views import encoder_spec

if TYPE_CHECKING:
    from m3g.data import ViewsData

NetRecipe: TypeAlias = dict[str, Any]  # arguments of `build_net`
FORMAT = 2  # version 2 added a digest of the weights
SCALING, INPUTS = "scaling.", "inputs."  # prefixes of tensors that are not weights


def network(config: Config, data: ViewsData, *, trust: bool = False) -> MultiViewNet:
    """Return the untrained network of a configuration for the views of a data module."""
    return build_net(**_recipe(config, data), trust=trust)


def _recipe(config: Config, data: ViewsData) -> NetRecipe:
    """Return the arguments of `build_net`."""
    head: dict[str, float | None] = {"hidden": config.heads.hidden}
    if config.heads.weight_std is not None:
        head["weight_std"] = config.heads.weight_std
    start = {} if config.heads.bias is None else {"bias": config.heads.bias}
    rates = [part.get("rate") for part in data.inputs] or [None] * data.k
    return {
        "view_shapes": [list(shape) for shape in data.view_shapes],
        "encoder": encoder_spec(config, data.view_names, rates),
        "shared": config.shared,
        "projector": {**head, **start, "out_features": config.heads.embedding_size},
        "predictor": head if config.heads.predictor else None,
    }


def save_network(
    net: MultiViewNet,
    config: Config,
    folder: str | os.PathLike[str],
    *,
    weights: Mapping[str, Tensor],
    data: ViewsData,
) -> None:
    """Write `model.safetensors` and `model.json` to a run folder, including the preprocessing of the inputs.

    `weights` are the unsharded weights of `net`.
    """
    tensors = dict(weights)
    for l, scaling in enumerate(data.scaling):
        if scaling is None:
            continue
        mean, divisor = scaling
        tensors |= {f"{SCALING}{l}.mean": mean, f"{SCALING}{l}.divisor": divisor}
    for l, parts in enumerate(data.input_tensors):
        tensors |= {f"{INPUTS}{l}.{part}": tensor for part, tensor in parts.items()}
    recipe = _recipe(config, data)
    specs = recipe["encoder"]
    for spec, encoder in zip(specs if isinstance(specs, list) else [specs], net.encoders):
        if spec.get("kind") == "transformers":
            backbone: Any = encoder.backbone
            # The full configuration instead of a name on the hub, so that loading requires no connection.
            settings = json.loads(backbone.config.to_json_string(use_diff=True))
            spec |= {"model": settings.pop("model_type"), "config": settings, "pretrained": False}
    names = {"view_names": list(data.view_names), "inputs": data.inputs}
    _write(folder, tensors, {"format": FORMAT, **names, **recipe})


def write_network(net: TrainedNet, folder: str | os.PathLike[str]) -> None:
    """Write a loaded network with its current weights to a folder that `load` reads."""
    inputs = {f"{INPUTS}{l}.{part}": value for l, recipe in enumerate(net.inputs) for part, value in recipe.items()}
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    _write(folder, {**net.state_dict(), **tensors}, net.description)


def _write(folder: str | os.PathLike[str], tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    run = Run.of(folder)
    run.path.mkdir(parents=True, exist_ok=True)
    # Contiguous copies under every name, because safetensors rejects shared storage.
    content = bytes_of({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    with atomic(run.weights) as file:
        file.write(content)
    write_json(run.model, {**description, "weights": digest(content)})


def load(
    folder: str | os.PathLike[str],
    *,
    trust: bool = False,
    scaled: bool = False,
    revision: str | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> TrainedNet:
    """Load the trained network of a run: `load(run)(views)` returns embeddings (k, n, d).

    `load(run).embed(views)` also returns the mask and the mean over the present views. Views are a list, a dictionary
    by name or the path of a table, and some may be missing: see `m3g.training.runs.trained.TrainedNet`.

    Nothing in the folder is executed: weights are safetensors, the rest is JSON, and an encoder given by its class path
    must come from m3g, torch.nn or transformers unless `trust=True`.

    Args:
        folder: a run folder, any folder with `model.safetensors` and `model.json`, or USER/NAME on the Hugging Face
            hub, where USER/NAME@REVISION names a branch, tag or commit.
        trust: allow encoder classes from any package; their code is then imported and executed.
        scaled: whether inputs are already scaled, like those of the run's data module; by default they are unscaled,
            and the network scales them as in training.
        revision: branch, tag or commit of a repository on the hub.
        token: access token of the hub, for a private repository; None uses that of `hf auth login`.
        local_files_only: do not connect to the hub.

    Returns:
        A `TrainedNet`, an `nn.Module`. `m3g.load("runs/m3g-1").embed({"sound": sounds}).mean` has one vector per
        object.

    Raises:
        ValueError: a file is missing, damaged, or does not match its SHA-256.

    Complexity: O(number of parameters), for reading and verifying the weights.
    """
    run = Run.find(folder, revision=revision, token=token, local_files_only=local_files_only)
    if run.loaded is None:
        run.loaded = _load(run, trust=trust)
    net = copy.copy(run.loaded)  # has the same weights and its own `scaled`
    net.scaled = scaled
    return net


def _load(run: Run, *, trust: bool) -> TrainedNet:
    recipe, expected = read_model(run)
    content = run.weights.read_bytes()
    if digest(content) != expected:
        raise ValueError(
            f"{run.weights} must contain the weights that {run.model.name} describes, but its SHA-256 differs: the "
            "file is damaged or belongs to another network; restore it from a copy."
        )
    try:
        net = build_net(**recipe, trust=trust, kind=TrainedNet)
        _describe(net, run)
    except (TypeError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise _foreign(run.model, error) from error
    try:
        check_safetensors(content)
        tensors = tensors_from(content)
        for l in range(len(net.view_shapes)):
            if f"{SCALING}{l}.mean" in tensors:
                net.scaling[str(l)] = Scale(*(tensors[f"{SCALING}{l}.{part}"] for part in ("mean", "divisor")))
        net.load_state_dict({name: t for name, t in tensors.items() if not name.startswith(INPUTS)})
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{run.weights} must contain the weights of {run.model.name}, but it is damaged or belongs to another "
            f"network ({reason})."
        ) from error
    net.inputs = [{**recipe, **_input_tensors(tensors, l)} for l, recipe in enumerate(net.inputs)]
    return net.eval()


def _input_tensors(tensors: Mapping[str, Tensor], l: int) -> dict[str, Tensor]:
    """Return the tensors of the preprocessing of view l."""
    prefix = f"{INPUTS}{l}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fitted_inputs(run: Run) -> dict[str, Recipe]:
    """Return the preprocessing of the views of a finished run, by view name.

    Views whose preprocessing has no tensors fitted on training rows are omitted.
    """
    if run.loaded is not None:
        named = zip(run.loaded.view_names, run.loaded.inputs)
        return {name: recipe for name, recipe in named if any(isinstance(part, Tensor) for part in recipe.values())}
    if not run.model.is_file() or not run.weights.is_file() or '"tfidf"' not in run.model_text:
        return {}
    content = json.loads(run.model_text)
    try:
        with open(run.weights, "rb") as file:
            check_safetensors(file.read(8))
        with safe_open(run.weights, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys() if name.startswith(INPUTS)}  # noqa: SIM118
        recipes = zip(content["view_names"], content["inputs"], strict=True)
        fits = [(name, recipe, _input_tensors(tensors, l)) for l, (name, recipe) in enumerate(recipes)]
        return {name: {**recipe, **fit} for name, recipe, fit in fits if fit}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _foreign(run.weights, error) from error


def _describe(net: TrainedNet, run: Run) -> None:
    """Set the attributes of a loaded network from `model.json`: names and shapes of views, and their preprocessing."""
    content = json.loads(run.model_text)
    net.description = content
    net.view_shapes = [tuple(shape) for shape in content["view_shapes"]]
    net.view_names = list(content.get("view_names") or [f"view{l}" for l in range(len(net.view_shapes))])
    net.inputs = list(content.get("inputs") or [])
    if net.inputs and len(net.inputs) != len(net.view_names):
        raise _foreign(run.model, ValueError(f"it has {len(net.inputs)} inputs for {len(net.view_names)} views"))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_model(run: Run) -> tuple[NetRecipe, str]:
    """Return the arguments of `build_net` and the digest of the weights, from `model.json`."""
    if not run.path.is_dir():
        raise ValueError(f"run must be the folder of a run, but there is none at {run.path}.")
    for path in (run.model, run.weights):
        if not path.is_file():
            advice = f"finish the training first, with m3g train --resume {run.path}"
            raise ValueError(
                f"run must be the folder of a finished run, but {run.path} has no {path.name}: "
                f"{advice if run.config.is_file() else 'check the name'}."
            )
    try:
        content = json.loads(run.model_text)
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']} and this version of m3g reads {FORMAT}")
        recipe = {name: content[name] for name in ("view_shapes", "encoder", "shared", "projector", "predictor")}
        return recipe, content["weights"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _foreign(run.model, error) from error


def _foreign(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} must be a file written by m3g train, but it is damaged or of another kind ({error}).")
