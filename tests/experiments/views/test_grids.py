"""Grids of the losses."""

from m3g.experiments.views import runs as views
from m3g.experiments.views.grids import NUM_SETTINGS, TEMPERATURE


def test_every_loss_has_a_grid_of_one_size():
    from m3g import losses

    assert set(views.GRIDS) == set(losses.available()) | set(views.LOSS_OF)
    assert {len(changes) for changes in views.GRIDS.values()} == {NUM_SETTINGS}
    for name, changes in views.GRIDS.items():
        for change in changes:
            own = {option.removeprefix("loss_options."): v for option, v in change.items() if "loss_options" in option}
            losses.build(views.LOSS_OF.get(name, name), **own, **views.FIXED.get(name, {}))


def test_all_losses_with_one_temperature_share_a_grid():
    grids = [
        changes for changes in views.GRIDS.values() if {name for change in changes for name in change} == {TEMPERATURE}
    ]
    assert len(grids) > 8
    assert all(changes == grids[0] for changes in grids)
