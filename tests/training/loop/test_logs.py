"""Lines and tables that a run writes."""

from m3g.cli import main


def test_steps_are_counted_if_they_limit_the_run(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    views = ["--views", str(finished / "a.npy"), str(finished / "b.npy"), "--data_options.batch_size", "20"]
    small = ["--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]
    assert main(["train", *views, *small, "--loop.max_steps", "3"]) == 0
    output = capsys.readouterr().out
    assert [line.split("  ")[0] for line in output.splitlines() if line.startswith(("step", "epoch"))] == [
        "step 1/3", "step 2/3", "step 3/3",
    ]  # fmt: skip
