"""Chunks that are recomputed in the backward pass: the loss and the gradients of the whole batch, in less memory."""

import copy
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from m3g import losses
from m3g.nets import MLP, MultiViewNet, Projector, Teacher, embed_in_chunks

K, N, D_IN, D, CHUNK = 3, 10, 7, 6, 4  # chunks of 4, 4 and 2 rows
NAMES = losses.available()
pytestmark = pytest.mark.filterwarnings("ignore:mcca requires batches")  # which are small here


def build(name):
    seeded = {"generator": torch.Generator().manual_seed(0)} if "generator" in losses.options(name) else {}
    return losses.build(name, **seeded)


def encoders(*last):
    torch.manual_seed(0)
    return nn.ModuleList(nn.Sequential(nn.Linear(D_IN, 16), nn.GELU(), nn.Linear(16, D), *last) for _ in range(K))


def inputs(n=N):
    return torch.randn(K, n, D_IN, generator=torch.Generator().manual_seed(1))


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


def in_chunks_with_graph(encoder, view):
    """The reference for `embed_in_chunks`, with all activations stored."""
    return torch.cat([encoder(part) for part in view.split(CHUNK)])


def in_chunks(encoder, view):
    return embed_in_chunks(encoder, view, chunk_size=CHUNK)


def seed():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_are_those_of_the_whole_batch(name, masked):
    nets, views = encoders().double(), inputs().double()
    mask = torch.rand(K, N, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[0] = mask[:, :4] = True
    options = {"mask": mask} if masked else {}
    if build(name).takes_teacher:
        options["teacher"] = torch.randn(K, N, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    results = []
    for embed in (lambda net, view: net(view), in_chunks):
        module = nn.ModuleList([copy.deepcopy(nets), build(name).double()])
        value = module[1]([embed(net, view) for net, view in zip(module[0], views)], **options)
        value.backward()
        results.append((value.detach(), gradients(module)))
    assert all(gradient.abs().max() > 0 for gradient in results[0][1][: 4 * K])
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-11)


class Noise(nn.Module):
    """An augmentation with random numbers of torch, NumPy and Python."""

    def forward(self, x):
        scales = np.random.rand(len(x), 1) + random.random()  # noqa: NPY002
        return x * torch.from_numpy(scales).to(x.dtype) + 0.1 * torch.randn_like(x)


def test_dropout_and_augmentations_repeat():
    results = []
    for embed in (in_chunks_with_graph, in_chunks):
        seed()
        nets = encoders(Noise(), nn.Dropout(0.5), nn.Linear(D, D))
        value = build("infonce-pwe")([embed(net, view) for net, view in zip(nets, inputs())])
        after = torch.rand(2), np.random.rand(2), random.random()  # noqa: NPY002
        value.backward()
        later = torch.rand(2), np.random.rand(2), random.random()  # noqa: NPY002
        results.append((value.detach(), gradients(nets), after, later))
    torch.testing.assert_close(results[1], results[0])


def test_a_chunk_is_recomputed_under_the_autocast_of_its_first_pass():
    results = []
    for embed in (in_chunks_with_graph, in_chunks):
        nets = encoders()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            views = [embed(net, view) for net, view in zip(nets, inputs())]
            assert views[0].dtype == torch.bfloat16
            value = build("infonce-pwe")(views)
        value.backward()
        results.append((value.detach(), gradients(nets)))
    # Both round the same products to bfloat16 but sum them in a different order.
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=1e-3)


def test_batch_normalisation_is_an_error_in_training_mode_only():
    norm = nn.BatchNorm1d(D)
    net = encoders(norm)[0]
    with pytest.raises(ValueError, match=r"no batch normalisation that uses statistics.*got BatchNorm1d '3'"):
        in_chunks(net, inputs()[0])
    with pytest.raises(ValueError, match="no batch normalisation"):
        in_chunks(net.forward, inputs()[0])
    norm.eval()
    torch.testing.assert_close(in_chunks(net, inputs()[0]), net(inputs()[0]))
    net = encoders(nn.BatchNorm1d(D, track_running_stats=False))[0].eval()
    with pytest.raises(ValueError, match="no batch normalisation"):
        in_chunks(net, inputs()[0])


def test_views_names_and_other_arguments_reach_the_encoder():
    torch.manual_seed(0)
    net = MultiViewNet([MLP(D_IN) for _ in range(K)], Projector(256))
    views = list(inputs())
    torch.testing.assert_close(embed_in_chunks(net, views, chunk_size=CHUNK), net(views))
    torch.testing.assert_close(embed_in_chunks(net.embed_view, views[1], l=1, chunk_size=CHUNK), net(views)[1])
    from_teacher = embed_in_chunks(Teacher(net).embed_view, views[1], 1, chunk_size=CHUNK)
    assert not from_teacher.requires_grad
    with torch.no_grad():
        assert not embed_in_chunks(net, views, chunk_size=CHUNK).requires_grad


@pytest.mark.parametrize(
    ("encoder", "arguments", "chunk_size", "message"),
    [
        (nn.Identity(), [torch.ones(4, 2)], 0, "chunk_size must be a whole number of at least 1, got 0"),
        (torch.relu, [torch.ones(4, 2)], 2, "encoder must be an nn.Module or a method of one, got"),
        (nn.Identity(), ["text"], 2, "inputs must be tensors with the same number of rows, at least 1, got no tensor"),
        (nn.Identity(), [[torch.ones(4, 2), torch.ones(3)]], 2, "got tensors with 3 and 4 rows"),
        (nn.Identity(), [torch.ones(0, 2)], 2, "got tensors with 0 rows"),
        (nn.Flatten(0), [torch.ones(4, 2)], 2, r"encoder must return a tensor \(..., n, d\) .* got shape \(4,\)"),
    ],
)
def test_unsupported_inputs_of_chunking_are_errors(encoder, arguments, chunk_size, message):
    with pytest.raises(ValueError, match=message):
        embed_in_chunks(encoder, *arguments, chunk_size=chunk_size)


class LiveBytes(TorchDispatchMode):
    """Bytes of all tensors that were computed under this mode and are still alive, and their peak."""

    def __init__(self):
        super().__init__()
        self.sizes, self.peak = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self.sizes.values()))
        return out


def peak_bytes(n, *, chunk_size=None):
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv1d(8, 8, 3), nn.GELU())]
    net = nn.Sequential(nn.Conv1d(1, 8, 3), *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
    views = torch.randn(2, n, 1, 512)
    with LiveBytes() as live:
        if chunk_size is None:
            embedded = [net(view) for view in views]
        else:
            embedded = [embed_in_chunks(net, view, chunk_size=chunk_size) for view in views]
        build("infonce-pwe")(embedded).backward()
    return live.peak


def test_memory_is_that_of_a_batch_of_one_chunk():
    small, large, chunked = peak_bytes(16), peak_bytes(256), peak_bytes(256, chunk_size=16)
    assert large > 12 * small
    assert chunked < 1.25 * small
