"""Grids of the losses."""

from m3g.experiments.views import runs as views


def test_every_loss_has_a_grid_of_one_size():
    from m3g import losses

    assert set(views.GRIDS) == set(losses.available()) | set(views.LOSS_OF)
    assert {len(changes) for changes in views.GRIDS.values()} == {4}
    for name, changes in views.GRIDS.items():
        for change in changes:
            own = {option.removeprefix("loss_options."): v for option, v in change.items() if "loss_options" in option}
            losses.build(views.LOSS_OF.get(name, name), **own, **views.FIXED.get(name, {}))
