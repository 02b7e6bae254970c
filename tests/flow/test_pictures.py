"""Pictures of the gradient flow."""

import pytest
from PIL import Image

from m3g.cli import main
from m3g.flow import descend as flow
from m3g.flow import pictures as flow_pictures


@pytest.mark.parametrize("options", [["--loss", "m3g", "infonce-pwe"], ["--space", "sphere", "--k", "4", "--n", "3"]])
def test_the_command_writes_pictures(tmp_path, capsys, options):
    out = tmp_path / "new" / "flow"
    assert main(["flow", "--steps", "12", "--frames", "4", "--n", "3", *options, "--out", str(out)]) == 0
    assert "the best polymatching is not the true one after 12 steps: increase --steps" in capsys.readouterr().out
    assert (out / "flow.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "flow.svg").read_text()
    with Image.open(out / "flow.gif") as picture:
        assert 2 <= picture.n_frames <= 6
    assert (out / "flow.mp4").exists() == (flow_pictures.shutil.which("ffmpeg") is not None)


def test_without_ffmpeg_there_is_no_video(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    moments = flow.descend(flow.start(2, 2), "m3g", flow.Setting(steps=3))
    assert [path.name for path in flow_pictures.animate({"m3g": moments}, [0, 3], tmp_path)] == ["flow.gif"]


def test_a_negative_loss_is_in_the_range_of_its_axis():
    moments = flow.descend(flow.start(3, 3, space="sphere"), "mmcr", flow.Setting("sphere", steps=2))
    figure = flow_pictures._figure(6, 3)
    axes = figure.subplots(1, 3)
    for flows, lowest in (({"mmcr": moments}, min(m.loss for m in moments)), ({"mmcr": moments, "m3g": moments}, -1.0)):
        axes[0].clear()
        flow_pictures._curves(axes, flows)
        assert lowest < 0
        assert 1.5 * lowest < axes[0].get_ylim()[0] < lowest
