"""The training step: teacher, accumulation, schedules, and the stop at non-finite numbers."""

import copy

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

import m3g
from m3g.training.loop import fit
from m3g.training.loop.logs import Table
from m3g.training.runs import evaluate
from m3g.training.runs.evaluate import evaluate_run, watch
from m3g.training.settings.config import Config


def small(**changes):
    content = {
        "data_options": {"batch_size": 200, "views": ["fourier", "zernike", "morphology"]},
        "encoder_options": {"width": 16},
        "heads": {"embedding_size": 8, "hidden": 16},
        "loss": "infonce-pwe",
        "loop": {"epochs": 2, "evaluate_every": 0, "accelerator": "cpu"},
    }
    for name, value in changes.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    return Config.from_dict(content)


class Recorder(pl.Callback):
    """Callback that records every step."""

    def __init__(self):
        self.rates, self.decays, self.teachers, self.weights = [], [], [], []

    def on_train_batch_end(self, trainer, module, *_):
        decaying, exempt = trainer.optimizers[0].param_groups
        self.rates.append(decaying["lr"])
        self.decays.append((decaying["weight_decay"], exempt["weight_decay"]))
        self.weights.append(copy.deepcopy(module.net.encoders[0].state_dict()))
        if module.teacher is not None:
            self.teachers.append(copy.deepcopy(module.teacher.net.encoders[0].state_dict()))


def test_the_teacher_is_updated_once_per_optimiser_step(tmp_path):
    recorder = Recorder()
    config = small(teacher={"enabled": True, "momentum": 0.9}, loop={"accumulate": 2})
    fit.train(config, tmp_path / "run", callbacks=[recorder])
    teacher_changed = [
        any(not torch.equal(a, b) for a, b in zip(one.values(), two.values()))
        for one, two in zip(recorder.teachers, recorder.teachers[1:])
    ]
    student_changed = [
        any(not torch.equal(a, b) for a, b in zip(one.values(), two.values()))
        for one, two in zip(recorder.weights, recorder.weights[1:])
    ]
    # 7 batches per epoch: steps after batches 2, 4, 6 and the last
    assert student_changed == [True, False, True, False, True, True, False, True, False, True, False, True, True]
    assert teacher_changed == student_changed


def test_the_momentum_of_the_teacher_increases_to_1(tmp_path):
    momenta = []

    class Momenta(pl.Callback):
        def on_train_end(self, trainer, module):
            momenta.extend(module.teacher_momentum(step) for step in range(module.total_steps + 1))

    config = small(teacher={"enabled": True, "momentum": 0.9})
    fit.train(config, tmp_path / "run", callbacks=[Momenta()])
    assert [momenta[0], momenta[len(momenta) // 2], momenta[-1]] == pytest.approx([0.9, 0.95, 1.0])
    assert momenta == sorted(momenta)


def test_a_divergence_is_not_logged_as_the_gap():
    views = torch.randn(3, 8, 4)
    for loss, is_logged in ((m3g.losses.M3GLoss(), True), (m3g.losses.KLLoss(), False)):
        assert ("gap" in loss.report(loss(views))) == is_logged


def test_schedules_reach_the_optimiser(tmp_path):
    recorder = Recorder()
    config = small(
        optim={
            "learning_rate": 0.01,
            "min_learning_rate": 0.001,
            "warmup_epochs": 1.0,
            "weight_decay": 0.04,
            "end_weight_decay": 0.4,
        }
    )
    fit.train(config, tmp_path / "run", callbacks=[recorder])
    assert recorder.rates[:7] == pytest.approx([0.01 * (t + 1) / 7 for t in range(7)])
    assert recorder.rates[7] == pytest.approx(0.01)
    assert 0.001 < recorder.rates[-1] < 0.002
    assert recorder.decays[0] == pytest.approx((0.04, 0.0))
    assert 0.38 < recorder.decays[-1][0] < 0.4


def test_the_scaling_rules_use_the_batch_of_all_accumulated_batches(tmp_path):
    recorder = Recorder()
    config = small(
        optim={"learning_rate": 0.01, "reference_batch": 100, "warmup_epochs": 0.0},
        loop={"accumulate": 2, "epochs": 1},
    )
    fit.train(config, tmp_path / "run", callbacks=[recorder])
    assert recorder.rates[1] == pytest.approx(0.01 * 4**0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "m3g", "data_options": {"batch_size": 32}},
        {"loss": "m3g", "teacher": {"enabled": True}, "heads": {"predictor": True}},
        {"loss": "m3g", "teacher": {"enabled": True, "student_views": 1}},
        {"loss": "m3g", "views_per_step": 2},
        {"loss": "m3g", "views_per_step": 2, "subsets_per_step": 1, "teacher": {"enabled": True}},
        {"loss": "infonce-pwe", "views_per_step": 2, "subsets_per_step": 2},
        {"loss": "m3g", "loop": {"precision": "bf16-mixed"}},
        {"loss": "byol-pwe", "teacher": {"enabled": True}, "heads": {"predictor": True}},
    ],
    ids=["single", "leave-one-out", "split", "pairs", "one pair", "pairwise pairs", "bfloat16", "byol"],
)
def test_every_form_of_training_reduces_the_loss(tmp_path, changes):
    loop = {"epochs": 3, **changes.pop("loop", {})}
    run = fit.train(small(loop=loop, **changes), tmp_path / "run")
    losses = [row["loss"] for row in Table(run.path / "metrics.csv").rows()]
    assert sum(losses[-5:]) < sum(losses[:5])
    embeddings = m3g.load(run.path)([torch.randn(4, 76), torch.randn(4, 47), torch.randn(4, 6)])
    assert embeddings.shape == (3, 4, 8)


def test_training_supports_missing_views(tmp_path):
    rng = np.random.default_rng(0)
    paths, common = [str(tmp_path / f"{l}.npy") for l in range(3)], rng.standard_normal((120, 4))
    for l, path in enumerate(paths):
        view = (common @ rng.standard_normal((4, 4 + l))).astype(np.float32)
        view[rng.permutation(120)[:20] if l else []] = np.nan
        np.save(path, view)
    config = small(loss="m3g", views_per_step=2, encoder="mlp", loop={"epochs": 15, "patience": 0})
    config.data, config.data_options = "arrays", {"paths": paths, "batch_size": 20}
    run = fit.train(config, tmp_path / "run")
    values = [row["loss"] for row in Table(run.path / "metrics.csv").rows()]
    assert sum(values[-10:]) < 0.7 * sum(values[:10])
    report = evaluate_run(run.path)[0]
    assert report.numbers["recall_at_1"] > 3 * report.chance["recall_at_1"]


def test_subsets_solved_together_are_the_mean_of_the_subsets():
    data = fit.build_data(small())
    module = fit.build_module(small(loss="m3g"), data)
    embeddings, teacher = torch.randn(2, 4, 10, 8)
    pairs = [[0, 1], [0, 3], [2, 3]]
    for targets in (None, teacher):
        parts = [module.loss(embeddings[pair], teacher=None if targets is None else targets[pair]) for pair in pairs]
        together = module.compare(embeddings, targets, None, pairs)
        torch.testing.assert_close(together, torch.stack(parts).mean())
    present = torch.ones(4, 10, dtype=torch.bool)
    torch.testing.assert_close(
        module.compare(embeddings, None, present, pairs), module.compare(embeddings, None, None, pairs)
    )


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_other_precisions_train_and_are_evaluated(tmp_path, monkeypatch, precision):
    """With a teacher and accumulation; the loss itself is never computed in less than single precision."""
    monkeypatch.setattr(evaluate, "MEASURED", {"train": 400, "test": 100})
    dtypes = set()

    class RecordDtypes(pl.Callback):
        def on_train_start(self, trainer, module):
            module.loss.register_forward_hook(lambda loss, inputs, output: dtypes.add(output.dtype))

    config = small(
        loss="m3g",
        data_options={"batch_size": 50},
        teacher={"enabled": True, "momentum": 0.5},
        heads={"predictor": True},
        loop={"precision": precision, "accumulate": 2, "epochs": 5, "evaluate_every": 5},
    )
    run = fit.train(config, tmp_path / "run", callbacks=[*watch(config, tmp_path / "run"), RecordDtypes()])
    assert dtypes == {torch.float64 if precision == "64-true" else torch.float32}
    values = [row["loss"] for row in Table(run.path / "metrics.csv").rows()]
    assert torch.isfinite(torch.tensor(values)).all()
    assert sum(values[-5:]) < 0.9 * sum(values[:5])
    assert Table(run.path / "probes.csv").rows()[0]["linear_mean"] > 0.5
    report, _ = evaluate_run(run.path)
    assert report.numbers["linear_mean"] > 0.5
