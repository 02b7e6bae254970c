"""`m3g train --dry-run`, and the plans at the paper's scale on a tree of ten images."""

import numpy as np
import pytest
from PIL import Image

from m3g.cli import main

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(len(str(path))).integers(0, 255, (40, 40, 3)).astype(np.uint8)).save(path)


def test_a_dry_run_writes_nothing_and_raises_the_errors_of_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run"]) == 0
    assert "the settings are valid; nothing was written" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["train", "--dry-run", "--loss", "byol-pwe", "--loss_options.epsilon", "1"]) == 2
    assert main(["train", "--dry-run", "--teacher.student_views", "2"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet", "domainnet", "eeg"])
def test_configurations_of_the_papers_plan_are_accepted(tmp_path, capsys, name):
    data, out = tmp_path / "data", tmp_path / "out"
    if name == "imagenet":
        for image in range(5):
            picture(data / "train" / f"n{image % 2}" / f"{image}.jpg")
            picture(data / "val" / f"n{image % 2}" / f"{image}.jpg")
    elif name == "domainnet":
        for domain in DOMAINS:
            for image in range(6):
                picture(data / domain / f"class{image % 2}" / f"{image}.jpg")
    else:
        for part, channels in (("pretrain", 6), ("sleep", 2)):
            (data / part).mkdir(parents=True)
            lines = ["subject,split"]
            for subject, split in enumerate(("train", "train", "val", "test")):
                signals = np.random.default_rng(subject).normal(size=(3, channels, 3000)).astype(np.float32)
                np.savez(data / part / f"s{subject}.npz", signals=signals, subject=np.array([f"s{subject}"] * 3))
                lines.append(f"s{subject},{split}")
            (data / part / "split.csv").write_text("\n".join(lines) + "\n")
    command = ["reproduce", name, "--scale", "paper", "--plan", "--seeds", "1", "--methods", "m3g"]
    assert main([*command, "--data", str(data), "--out", str(out)]) == 0
    assert "data        complete" in capsys.readouterr().out
    plan = sorted((out / "plan").glob("*.yaml"))
    # one of the twelve layers of the transformer: the test covers its settings, not its depth
    shallow = [] if name == "eeg" else ["--encoder_options.config.num_hidden_layers", "1"]
    assert main(["train", "--config", str(plan[0]), "--dry-run", *shallow]) == 0
    assert "nothing was written" in capsys.readouterr().out
