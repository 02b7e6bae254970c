"""Lightning module with the training step and its schedules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from m3g.data.batch import Batch
from m3g.data.entries import drop_entries, hashed_draws
from m3g.losses import ViewLoss
from m3g.nets import MultiViewNet, Teacher, embed_in_chunks
from m3g.training.loop import optim
from m3g.training.loop.light import Position
from m3g.training.loop.nonfinite import NonFiniteLoss
from m3g.training.loop.seeds import seed_everything
from m3g.training.loop.sharding import shard
from m3g.training.loop.start import Start
from m3g.training.mismatch.reliability import Mismatch
from m3g.training.settings.config import OptimSettings, TeacherSettings

# Number of views that view dropout keeps in every row (all, if a row has fewer), because a loss compares at least two.
KEPT_VIEWS = 2


class MultiViewModule(pl.LightningModule):
    """Encoders, heads and a loss, trained together.

    Args:
        net: maps a list of k inputs to embeddings (k, n, d).
        loss: any `m3g.losses.ViewLoss`.
        optim: the optimiser and its schedules.
        teacher: settings of the teacher; by default there is none.
        views_per_step: number of views compared at a time; None means all.
        subsets_per_step: number of random subsets of that size over which a step averages the loss.
        view_dropout: probability of removing an entry (a view of a row) from the loss of a step; every row keeps at
            least `KEPT_VIEWS` of its views, if it has as many.
        mismatch: estimates the reliability of entries and excludes unreliable ones; None disables this.
        chunk_size: rows of a view embedded at a time, see `m3g.nets.embed_in_chunks`; None embeds all at once.
        batch_size: rows per batch and process, required with `optim.reference_batch`.
        seed: determines the random numbers of each step (dropout, view dropout, subsets of views, student views).

    A batch is a `m3g.data.batch.Batch`. To change a step, override `embed` (the inputs of the loss) or `training_step`.

    All random numbers are a function of the seed and the number of the batch, and those of the networks also of the
    process: see `m3g.training.loop.checkpoint`.
    """

    def __init__(
        self,
        net: MultiViewNet,
        loss: ViewLoss,
        *,
        optim: OptimSettings | None = None,
        teacher: TeacherSettings | None = None,
        views_per_step: int | None = None,
        subsets_per_step: int = 1,
        view_dropout: float = 0.0,
        mismatch: Mismatch | None = None,
        chunk_size: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.net = net
        self.loss = loss
        self.optim_settings = optim or OptimSettings()
        self.teacher_settings = teacher or TeacherSettings()
        self.teacher = Teacher(net) if self.teacher_settings.enabled else None
        self.views_per_step = views_per_step
        self.subsets_per_step = subsets_per_step
        self.view_dropout = view_dropout
        self.mismatch = mismatch
        self.chunk_size = chunk_size
        self.batch_size = batch_size
        self.seed = seed
        if self.optim_settings.reference_batch is not None and batch_size is None:
            raise ValueError("batch_size must be a whole number with optim.reference_batch, got None.")
        self.start = Start()  # whether the linear maps start at linear CCA
        self.kappa = 1.0  # batch of the run / reference batch; set in `setup`
        self.position: Position | None = None  # of a loop without a trainer, see `m3g.training.loop.light`

    def forward(self, views: list[Tensor]) -> Tensor:
        return self.net(views)

    # ---------------------------------------------------------------- one step

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        views, mask = batch["views"], batch.get("mask")
        if self.loss.scheduled:
            self.loss.set_progress(self.now.step / max(self.total_steps - 1, 1))
        subsets = self.draw_subsets(len(views))
        shown = sorted({l for subset in subsets for l in subset})
        embeddings, teacher = self.embed(views, shown)
        if not bool(torch.isfinite(embeddings).all()):
            raise self._stopped("the embeddings are not finite", batch)
        if self.mismatch is not None:
            mask = self.reliable_mask(embeddings, mask, batch["index"], shown)
        if self.view_dropout > 0:
            key = (self.seed, self.now.batch)
            draws = hashed_draws(len(views), batch["index"], key=key)
            mask = drop_entries(mask, draws, fraction=self.view_dropout, keep=KEPT_VIEWS)
        positions = [[shown.index(l) for l in subset] for subset in subsets]
        try:
            loss = self.compare(embeddings, teacher, None if mask is None else mask[shown], positions)
        except FloatingPointError as error:
            raise self._stopped(str(error), batch) from error
        if not bool(torch.isfinite(loss)):
            raise self._stopped(f"the loss is {float(loss.detach())}", batch)
        self._batch = batch
        if self.position is None:
            self.report(loss, batch)
        return loss

    def embed(self, views: list[Tensor], shown: list[int]) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (len(shown), n, d) of the views with the indices `shown`, which this step compares.

        In the leave-one-out form (`student_views=None`), also return those of the teacher, of the same shape; otherwise
        None.
        """
        if self.teacher is None:
            return self._stack(dict.fromkeys(shown, self.net), views), None
        students = self.teacher_settings.student_views
        if students is None:
            student, teacher = dict.fromkeys(shown, self.net), dict.fromkeys(shown, self.teacher)
            return self._stack(student, views), self._stack(teacher, views)
        chosen = self._random(2).permutation(shown)[:students]
        return self._stack({l: self.net if l in chosen else self.teacher for l in shown}, views), None

    def _stack(self, networks: Mapping[int, MultiViewNet | Teacher], views: list[Tensor]) -> Tensor:
        """Return the embeddings of the views that `networks` maps to a network, each computed by that network."""
        size = self.chunk_size
        return torch.stack(
            [
                net.embed_view(views[l], l)
                if size is None
                else embed_in_chunks(net.embed_view, views[l], l, chunk_size=size)
                for l, net in networks.items()
            ]
        )

    def reliable_mask(self, embeddings: Tensor, mask: Tensor | None, index: Tensor, shown: list[int]) -> Tensor | None:
        """Update the reliabilities with this batch; return the mask without entries that were unreliable before it."""
        assert self.mismatch is not None
        trusted = self.mismatch.trusted(index, mask)
        self.mismatch.observe(embeddings.detach(), index, views=shown, mask=None if mask is None else mask[shown])
        return trusted

    def compare(
        self, embeddings: Tensor, teacher: Tensor | None, mask: Tensor | None, subsets: list[list[int]]
    ) -> Tensor:
        """Return the mean of the loss over subsets of the views, usually one subset with all views.

        Args:
            embeddings: (s, n, d), of the s views that the step compares.
            teacher: embeddings of the teacher (s, n, d), or None.
            mask: bool (s, n), or None.
            subsets: the positions in `embeddings` of the views of each subset.
        """
        chosen = torch.tensor(subsets, device=embeddings.device)
        masks = None if mask is None else mask[chosen]
        if len(subsets) > 1 and self.loss.takes_batches and (masks is None or bool(masks.any(1).all())):
            # Problems of equal shape are solved as a batch.
            teachers = None if teacher is None else teacher[chosen]
            return self.loss(embeddings[chosen], mask=masks, teacher=teachers).mean()
        losses = []
        for subset in subsets:
            points, present = embeddings[subset], None if mask is None else mask[subset]
            extra = {} if teacher is None else {"teacher": teacher[subset]}
            if present is not None:
                rows = present.any(0)  # rows without any of these views are skipped
                points, present = points[:, rows], present[:, rows]
                extra = {name: value[:, rows] for name, value in extra.items()}
            losses.append(self.loss(points, mask=present, **extra))
        return torch.stack(losses).mean()

    def draw_subsets(self, k: int) -> list[list[int]]:
        """Return the subsets of views that this step compares."""
        if self.views_per_step is None:
            return [list(range(k))]
        candidates = list(itertools.combinations(range(k), self.views_per_step))
        chosen = self._random(1).permutation(len(candidates))[: self.subsets_per_step]
        return [list(candidates[i]) for i in sorted(chosen)]

    def _random(self, purpose: int) -> np.random.Generator:
        """Return the generator of this step for one purpose, independent of the rank, so that all processes agree."""
        return np.random.default_rng([self.seed, self.now.batch, purpose])

    def report(self, loss: Tensor, batch: Batch) -> None:
        """Log the loss, the quantities that it reports and the learning rate, for metrics.csv and the loggers."""
        log = partial(self.log, batch_size=len(batch["views"][0]), sync_dist=self.trainer.world_size > 1)
        log("loss", loss.detach(), prog_bar=True)
        for name, value in self.loss.report(loss).items():
            log(name, value, prog_bar=True)
        log("learning_rate", self.learning_rate(self.global_step))

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], object] | None = None,
    ) -> None:
        """Set the learning rates and weight decays, execute the optimiser step, and update the teacher."""
        step = self.now.step
        self.set_rates(optimizer, step)
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        self.update_teacher(step)

    def set_rates(self, optimizer: Optimizer | LightningOptimizer, step: int) -> None:
        """Set the learning rates and weight decays of a step."""
        for group in optimizer.param_groups:
            rate = group.get("own_rate")  # separate peak, same schedule
            factor = 1.0 if rate is None else rate / self.optim_settings.learning_rate
            group["lr"] = self.learning_rate(step) * factor
            group["weight_decay"] = self.weight_decay(step) if group["decays"] else 0.0

    def update_teacher(self, step: int) -> None:
        if self.teacher is not None:
            self.teacher.update(self.net, self.teacher_momentum(step))

    def on_before_optimizer_step(self, optimizer: Optimizer | None) -> None:
        """Raise before a non-finite gradient reaches the weights, unless the trainer discards such steps."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if not self.now.skips_overflow and not bool(torch.isfinite(norm)):
            raise self._stopped(f"the gradient's norm is {float(norm)}", self._batch)

    def _stopped(self, what: str, batch: Batch) -> NonFiniteLoss:
        step, peak = self.now.step, self.optim_settings.learning_rate
        return NonFiniteLoss.at(step, what, batch.get("index"), rate=self.learning_rate(step), peak=peak)

    # ---------------------------------------------------------------- schedules

    @property
    def now(self) -> Position:
        """The position of the trainer, or of a loop without one."""
        return Position.of(self.trainer) if self.position is None else self.position

    @property
    def total_steps(self) -> int:
        return self.now.total

    def learning_rate(self, step: int) -> float:
        settings = self.optim_settings
        per_epoch = self.total_steps / max(self.now.epochs, 1)
        return optim.warmup_cosine(
            step,
            total=self.total_steps,
            warmup=min(round(settings.warmup_epochs * per_epoch), self.total_steps),
            peak=self.adam.learning_rate,
            floor=settings.min_learning_rate * self.kappa**0.5,
        )

    def weight_decay(self, step: int) -> float:
        settings = self.optim_settings
        if settings.end_weight_decay is None:
            return settings.weight_decay
        return optim.cosine(step, total=self.total_steps, start=settings.weight_decay, end=settings.end_weight_decay)

    def teacher_momentum(self, step: int) -> float:
        start = optim.scale_momentum(self.teacher_settings.momentum, self.kappa)
        return optim.cosine(step, total=self.total_steps, start=start, end=1.0)

    # ---------------------------------------------------------------- Lightning's hooks

    def configure_model(self) -> None:
        """Shard the networks over the processes with the strategy fsdp, which provides a mesh."""
        if self.device_mesh is not None:
            nets = [self.net] if self.teacher is None else [self.net, self.teacher.net]
            heads = [net.predictor for net in nets if net.predictor is not None]
            shard(
                [*(part for net in nets for part in (*net.encoders, *net.projectors)), *heads],
                self.device_mesh["data_parallel"],
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return optim.adamw(nn.ModuleList([self.net, self.loss]), self.adam)

    @property
    def adam(self) -> optim.AdamSettings:
        settings = self.optim_settings
        return optim.scale_adam(optim.AdamSettings(settings.learning_rate, settings.betas, settings.eps), self.kappa)

    def setup(self, stage: str) -> None:
        reference = self.optim_settings.reference_batch
        if reference is not None and self.batch_size is not None:
            self.kappa = self.batch_size * self.now.batches_per_step / reference

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        seed_everything(self.seed, 1 + self.trainer.fit_loop.epoch_loop.total_batch_idx, self.global_rank)
