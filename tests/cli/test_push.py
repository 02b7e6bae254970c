"""Uploads without a connection."""

from fixtures import error_of


def test_an_unreachable_hub_is_reported_in_one_line(copy, capsys, no_hub):
    assert "repository must be a name on a hub that can be reached" in error_of(["push", copy, "me/mine"], capsys)
