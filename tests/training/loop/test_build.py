"""Networks, losses and subsets of a configuration."""

import pytest

from m3g.training.loop import build, fit
from training.loop.test_module import small


def test_a_batch_too_large_for_the_rule_is_an_error_and_leaves_no_files(tmp_path):
    config = small(optim={"reference_batch": 10})
    with pytest.raises(ValueError, match="got 1/20, for which"):
        fit.train(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("loss", ["m3g", "kl"])
def test_the_number_of_subsets_depends_on_the_batch_size(loss):
    sizes = {}
    for batch in (16, 32, 64, 128, 256):
        config = small(data_options={"batch_size": batch, "views": None}, loss=loss)
        sizes[batch] = build.subsets(config, build.build_loss(config), k=6, batch_size=batch)
    assert sizes == {16: (6, 1), 32: (4, 15), 64: (4, 3), 128: (3, 20), 256: (3, 3)}
    config = small(data_options={"views": None})
    assert build.subsets(config, build.build_loss(config), k=6, batch_size=64) == (6, 1)
