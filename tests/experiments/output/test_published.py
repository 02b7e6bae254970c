"""Transcribed numbers of the paper: the tables report some of them twice, which detects errors of transcription."""

from m3g.experiments.output.published import COST, DOMAINNET, EEG, IMAGENET, METHODS


def test_the_circular_variance_of_table_4_is_m3g_of_table_1():
    assert {k: row["cv"] for k, row in COST.items()} == {k: row["m3g"][0] for k, row in IMAGENET.items()}


def test_both_aggregations_of_two_views_are_equal():
    assert IMAGENET[2]["byol-ave"] == IMAGENET[2]["byol-pwe"]
    assert IMAGENET[2]["infonce-ave"] == IMAGENET[2]["infonce-pwe"]


def test_tables_are_complete():
    for rows in (IMAGENET, DOMAINNET):
        assert all(tuple(row) == METHODS for row in rows.values())


def test_accuracy_rises_with_the_number_of_labels():
    assert all(list(row.values()) == sorted(row.values()) for row in EEG.values())
