"""Invalid settings, data and files of a training are reported in one line."""

import re

import pytest

from fixtures import error_of
from m3g.training.settings.check import check
from m3g.training.settings.config import Config, LoopSettings

CASES = [
    (["--views", "a.npy", "missing.npy"], "missing.npy"),
    (["--views", "a.npy", "short.npy"], r"a 60, short 40"),
    (["--views", "a.npy", "b.npy", "--labels", "labels.npy"], "labels must have 60 entries"),
    (["--views", "a.npy", "hollow.npy"], "only NaN in column 2: remove it"),
    (["--views", "a.npy", "pickle.npy"], "pickle.npy"),
    (["--views", "a.npy"], "k >= 2 files"),
    (["--views", "a.npy", "b.npy", "--data_options.batch_size", "50"], "batch_size must be at most 42, the number"),
    (["--views", "a.npy", "b.npy", "--data_options.batch_size", "1"], "batch_size must be at least 2, because rows"),
    (["--labels", "labels.npy"], "--labels requires --views"),
    (["--loss", "nonsense"], "loss must be one of"),
    (["--loss_options.nonsense", "3"], "nonsense"),
    (["--loss_options.epsilon", "-1"], "epsilon must be a positive"),
    (["--encoder", "nonsense"], "encoder must be one of"),
    (["--encoder", "os.system"], "trust=True"),
    (["--encoder_options.nonsense", "3"], "nonsense"),
    (["--data", "nonsense"], "data must be one of"),
    (["--data_options.nonsense", "3"], "data_options of multiple-features must be among .*got nonsense"),
    (["--views_per_step", "1"], "views_per_step must be"),
    (["--teacher.student_views", "2"], "teacher.student_views must be"),
    (["--loss", "mmcr", "--teacher.enabled", "true"], "student–teacher form"),
    (["--loss", "byol-ave"], "works without a teacher"),
    (["--loop.epochs", "0"], "loop.epochs must be"),
    (["--loop.epochs", "many"], "loop.epochs must be a whole number or null, got 'many'"),
    (["--heads.hidden", "wide"], "heads.hidden must be a whole number or null, got 'wide'"),
    (["--loop.epoch", "3"], r"loop must have only the names accelerator, .*, got epoch: did you mean epochs\?$"),
    (["--loop.precision", "3-bit"], "precision"),
    (["--loop.accelerator", "gpu"], "got accelerator gpu"),
    (["--loop.strategy", "nonsense"], "strategy nonsense"),
    (["--loop.strategy", "fsdp"], "loop.strategy fsdp requires several processes"),
    (["--loop.strategy", "fsdp", "--loss", "symile"], "loss must have no parameters with loop.strategy fsdp"),
    (["--loop.chunk_size", "0"], "loop.chunk_size must be a whole number of at least 1, got 0"),
    (["--loop.clip", "-1"], "loop.clip must be a positive"),
    (["--seed", "-1"], "seed must be"),
    (["--teacher.momentum", "2"], "teacher.momentum must be"),
    (["--heads.embedding_size", "0"], "heads.embedding_size must be"),
    (["--data", "images"], "must have root, got none: use --data_options.root VALUE"),
    (["--encoder", "transformers"], "inputs of the view's shape"),
    (["--views", "a.npy", "words.csv"], "only numeric columns, but column 'name'"),
    (["--out", "/proc/run"], "--out must be a folder that can be created"),
    (["--optim.learning_rate", "-1"], "optim.learning_rate must be"),
    (["--nonsense", "3"], r"must be those that m3g train --help lists, got --nonsense\.$"),
    (["--lop.epochs", "3"], r"got --lop.epochs: did you mean --loop.epochs\?$"),
    (["--loss", "infonce-pw"], r"got 'infonce-pw': did you mean infonce-pwe\?$"),
    (["--loss_options.epsilom", "0.1"], r"got epsilom: did you mean epsilon\?$"),
    (["--data_options.batchsize", "3"], r"got batchsize: did you mean batch_size\?$"),
    (["--view_dropout", "1.5"], "view_dropout must be a number from 0"),
    (["--config", "missing.yaml"], "missing.yaml"),
    (["--config", "bad.yaml"], "bad.yaml|parse|YAML|expected"),
    (["--config", "unknown.yaml"], "learning_rte"),
    (
        ["--config", "group.yaml", "--loop.epochs", "2"],
        "group.yaml: loop must be a mapping of names to values, got int",
    ),
    (["--config", "null.yaml"], "null.yaml: seed must be a whole number, got None"),
    (["--config", "empty.yaml"], "empty.yaml must be a mapping of names to values, got NoneType"),
    (["--config", "bytes.yaml"], "bytes.yaml must be YAML, but it cannot be read"),
    (["--config=egg"], "must be a YAML file or one of domainnet, eeg, imagenet, got 'egg'"),
    (
        ["--views", "a.npy", "b.npy", "--data_options.paths", "[c.npy]"],
        "--views must not be combined with data_options.paths",
    ),
    (["--data_options.standardize", "maybe"], "standardize must be true or false, got 'maybe'"),
    (["--data_options.num_workers", "many"], "num_workers must be a whole number, got 'many'"),
    (["--data_options.val", "x"], "val must be a number, got 'x'"),
    (["--data_options.seed", "-3"], "seed must be a whole number from 0"),
    (["--data_options.views", "fourier"], "views must be a list of strings or null, got 'fourier'"),
    (["--optim.end_weight_decay", "-1"], "optim.end_weight_decay must be a finite number of at least 0"),
    (["--resume", "missing"], "there is none at missing"),
    (["--resume"], "got none under runs/"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_wrong_arguments_of_train_are_reported_in_one_line(data_folder, capsys, arguments, message):
    arguments = [str(data_folder / a) if (data_folder / a).exists() else a for a in arguments]
    line = error_of(["train", *arguments], capsys)
    assert re.search(message, line), line
    assert list(data_folder.parent.joinpath("work").iterdir()) == []


@pytest.mark.parametrize("name", ["evaluate_every", "patience"])
@pytest.mark.parametrize("value", [-1, 2.5, True, None])
def test_numbers_of_epochs_are_whole_and_at_least_0(name, value):
    with pytest.raises(ValueError, match=f"^loop.{name} must be a whole number of at least 0, got {value}.$"):
        check(Config(loop=LoopSettings(**{name: value})))
