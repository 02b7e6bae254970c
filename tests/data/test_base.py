"""A resumed run has the batches of an uninterrupted one."""

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from m3g.data import MultipleFeatures

# Lightning's default trainer warns if Slurm is installed; that of `m3g train` does not.
pytestmark = pytest.mark.filterwarnings("ignore:The `srun` command is available")


class Recorder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, step):
        self.seen.append((self.current_epoch, step, batch["index"].tolist()))
        return self.layer(torch.ones(1)).sum()

    def validation_step(self, batch, step):
        """Lightning warns about validation data without this method."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run(folder, *, workers, resume=None):
    model = Recorder()
    trainer = lightning.Trainer(
        max_steps=11,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)],
    )
    data = MultipleFeatures(batch_size=300, num_workers=workers)  # four steps per epoch
    trainer.fit(model, data, ckpt_path=resume)
    return model.seen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*num_workers.*", "ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*number of training batches.*", "ignore:.*isinstance.treespec.*")
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_can_be_resumed_at_any_step(tmp_path, workers):
    full = run(tmp_path / "full", workers=workers)
    assert len(full) == 11
    for step in (3, 4, 5, 8):  # within the first epoch, at its end, just after, at the end of the second
        rest = run(tmp_path / f"{step}", workers=workers, resume=tmp_path / "full" / f"step={step}.ckpt")
        assert rest == full[step:]
