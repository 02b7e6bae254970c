"""Class-aligned batches of several domains."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.data import DomainArrays


@given(n=st.integers(1, 6), seed=st.integers(0, 50), held_out=st.sampled_from("abc"))
@settings(max_examples=15, deadline=None)
def test_a_batch_has_one_image_per_class_and_training_domain(tmp_path_factory, n, seed, held_out):
    random = np.random.default_rng(seed)
    file = tmp_path_factory.mktemp("sets") / "sets.npz"
    labels = {name: np.repeat(list("uvwxyz"), each) for name, each in (("a", 5), ("b", 8), ("c", 4))}
    # two pixels of an image encode its class and domain, so that a batch can be decoded
    arrays = {}
    for d, (name, kinds) in enumerate(labels.items()):
        images = np.zeros((len(kinds), 4, 4), dtype=np.uint8)
        images[:, :, :2] = np.array([ord(kind) for kind in kinds])[:, None, None]
        images[:, :, 2:] = d
        order = random.permutation(len(kinds))
        arrays[name], arrays[f"{name}_label"] = images[order], kinds[order]
    np.savez(file, **arrays)
    data = DomainArrays(file, held_out=held_out, batch_size=n, points_per_epoch=4 * n, shift=0, seed=seed, val=0.2)
    assert held_out not in data.view_names
    draws = list(data.sampler())
    for start in range(0, len(draws), n):
        batch = data.datasets["train"].__getitems__(draws[start : start + n])
        pixels = [((view + 1) * 127.5).round() for view in batch["views"]]
        kinds = [[chr(int(value)) for value in view[:, 0, 0, 0]] for view in pixels]
        assert all(kinds[0] == other for other in kinds)
        assert len(set(kinds[0])) == n
        assert [data.class_names[c] for c in batch["label"]] == kinds[0]
        seen = [list("abc")[int(view[0, 0, 0, 3])] for view in pixels]
        assert seen == data.view_names
