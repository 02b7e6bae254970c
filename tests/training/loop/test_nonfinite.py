"""Training stops at non-finite numbers."""

import lightning.pytorch as pl
import pytest

from m3g.training.loop import fit
from m3g.training.loop.logs import Table
from training.loop.test_module import small


class Corrupt(pl.Callback):
    """Callback that corrupts the weights, a batch or the gradient at a given step."""

    def __init__(self, target, step):
        self.target, self.step = target, step

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == self.step:
            if self.target == "batch":
                batch["views"][1][3] = float("inf")
            elif self.target == "weights":
                next(module.net.parameters()).data[0, 0] = float("nan")

    def on_after_backward(self, trainer, module):
        if trainer.global_step == self.step and self.target == "gradient":
            next(module.net.parameters()).grad[0, 0] = float("nan")


@pytest.mark.parametrize("target", ["batch", "weights", "gradient"])
def test_non_finite_numbers_stop_the_run_with_step_rows_and_checkpoint(tmp_path, target):
    config = small(loss="m3g", loop={"epochs": 3, "checkpoint_every": 2})
    # the learning rate before the row numbers
    words = r"stopped at step 9: .*smaller optim\.learning_rate than 0\.002, .*rows \[\d+, .*190 more.*last\.ckpt"
    with pytest.raises(ValueError, match=words):
        fit.train(config, tmp_path / "run", callbacks=[Corrupt(target, 9)])
    assert not (tmp_path / "run" / "model.safetensors").exists()
    # the run can continue from the checkpoint, which is valid
    fit.train(config, tmp_path / "run", resume=True)
    assert len(Table(tmp_path / "run" / "metrics.csv").rows()) == 21
