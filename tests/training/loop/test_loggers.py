"""Experiment trackers: each real library, offline, with settings, metrics and final results."""

import csv
import json
import sqlite3
import struct

import numpy as np
import pytest
import yaml

from m3g.cli import main
from m3g.cli.command_line import read_settings
from m3g.training.loop import loggers
from m3g.training.settings.config import Config

QUICK = ["--loop.epochs", "2", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]


@pytest.fixture
def views(tmp_path, monkeypatch):
    """Two views in the working directory, and trackers that store there without a connection."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for seed, name in enumerate(("a", "b")):
        np.save(f"{name}.npy", np.random.default_rng(seed).standard_normal((60, 5)))
    return ["--views", "a.npy", "b.npy", "--data_options.batch_size", "20", *QUICK]


def results(run="run"):
    with open(f"{run}/results.json") as file:
        return json.load(file)["numbers"]


def test_tensorboard_and_csv_record_the_run(views):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["train", *views, "--logger", "tensorboard", "csv", "--out", "run"]) == 0
    with open("run/csv/version_0/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert {"loss", "gap", "learning_rate", "test/recall_at_1"} <= set(rows[0])
    assert float(rows[-1]["test/recall_at_1"]) == pytest.approx(results()["recall_at_1"])
    with open("run/csv/version_0/hparams.yaml") as file:
        assert yaml.safe_load(file)["loop.epochs"] == 2
    events = EventAccumulator("run/tensorboard").Reload()
    (last,) = events.Scalars("test/recall_at_1")
    assert last.value == pytest.approx(results()["recall_at_1"])
    assert len(events.Scalars("loss")) > 1


def wandb_records(content, block=2**15):
    """The records of a .wandb file: after 7 bytes, pieces with a header of checksum, length and kind, in blocks."""
    position, record = 7, b""
    while position + 7 <= len(content):
        if block - position % block < 7:  # the end of a block that holds no header is filled up
            position += block - position % block
        _, length, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


@pytest.mark.slow
def test_wandb_records_offline(views, tmp_path, monkeypatch):
    import wandb
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", "300")  # seconds; 30 by default, which a busy machine can exceed
    monkeypatch.chdir(tmp_path.parent)
    wandb.init(mode="offline").finish()  # another run of the process, elsewhere
    monkeypatch.chdir(tmp_path)
    assert main(["train", *views, "--logger", "wandb", "--out", "run"]) == 0
    wandb.teardown()  # `finish` returns before the service has written the file
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    summary, config, losses = {}, {}, 0
    for content in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        losses += any(item.key == "loss" or "loss" in item.nested_key for item in record.history.item)
        for part in (*record.history.item, *record.summary.update):
            summary["/".join(part.nested_key) or part.key] = part.value_json
        for part in record.config.update:
            config["/".join(part.nested_key) or part.key] = part.value_json
    assert json.loads(summary["test/recall_at_1"]) == pytest.approx(results()["recall_at_1"])
    assert json.loads(config["loop.epochs"]) == 2
    assert losses > 1
    identifier = json.loads((tmp_path / "run" / "loggers.json").read_text())["wandb"]
    assert path.name == f"run-{identifier}.wandb"


@pytest.mark.slow
# SQLAlchemy 2.1 deprecates what MLflow 3.17 uses
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_mlflow_in_a_local_file_continues_after_a_resume(views, tmp_path):
    from mlflow.tracking import MlflowClient

    assert main(["train", *views, "--logger", "mlflow", "--out", "run", "--loop.max_steps", "3"]) == 0
    client = MlflowClient("sqlite:///mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'm3g'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["loop.epochs"] == "2"
    assert run.data.metrics["test/recall_at_1"] == pytest.approx(results()["recall_at_1"])
    assert main(["train", "--resume", "run"]) == 0
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_trackio_records_on_this_machine(views, tmp_path):
    import trackio

    assert main(["train", *views, "--logger", "trackio", "--out", "run"]) == 0
    with sqlite3.connect(tmp_path / "trackio" / "m3g.db") as database:
        rows = [json.loads(row) for (row,) in database.execute("select metrics from metrics order by id")]
        (config,) = (json.loads(row) for (row,) in database.execute("select config from configs"))
    database.close()
    assert sum("loss" in row for row in rows) > 1
    assert rows[-1]["test/recall_at_1"] == pytest.approx(results()["recall_at_1"])
    assert config["loop.epochs"] == 2
    with pytest.raises(RuntimeError, match=r"trackio\.init"):  # no run is left to be ended at exit
        trackio.finish()


def test_the_logger_none_writes_no_records(views, tmp_path):
    assert main(["train", *views, "--logger", "none", "--out", "run"]) == 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "metrics.csv" in names
    assert not names & {"tensorboard", "csv", "loggers.json"}


def test_a_tracker_that_is_not_writable_leaves_no_files(views, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://at.all")
    assert main(["train", *views, "--logger", "mlflow", "--out", "run"]) == 2
    assert "logger must be a tracker that can be written to, got 'mlflow' (" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_an_error_that_names_the_extra(views, monkeypatch, capsys):
    find = loggers.importlib.util.find_spec
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    assert main(["train", *views, "--logger", "wandb", "--out", "run"]) == 2
    assert capsys.readouterr().err == "m3g: error: wandb is not installed: pip install 'm3g[loggers]'.\n"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["wandbb"], "logger must be one of .*, got 'wandbb': did you mean wandb"),
        (["csv", "csv"], "logger must be distinct names, or 'none' alone, got csv, csv."),
        (["none", "csv"], "logger must be distinct names, or 'none' alone, got none, csv."),
    ],
)
def test_wrong_names_are_rejected(names, message):
    with pytest.raises(ValueError, match=message):
        Config.from_dict({"logger": names})


def test_several_loggers_may_be_given():
    parsed = read_settings(["--logger", "csv", "wandb", "--out", "run", "--logger", "mlflow", "--seed", "1"])
    assert parsed.settings == {"logger": ["csv", "wandb", "mlflow"], "seed": 1}
    assert parsed.others == ["--out", "run"]
    assert read_settings(["--logger", "[csv, none]"]).settings == {"logger": ["csv", "none"]}
