"""Registry of losses."""

from __future__ import annotations

from m3g import losses


def test_describe_has_a_row_per_loss():
    rows, names = losses.describe(), losses.available()
    assert [name for name, _, _ in rows] == names
    assert all(summary and cost for _, summary, cost in rows)
    assert all("gather" in losses.options(name) and "normalize" in losses.options(name) for name in names)
