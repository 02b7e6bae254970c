"""Options of `m3g embed`."""

from fixtures import error_of


def test_the_output_must_be_an_npz_file(copy, capsys):
    assert "--out must be a file name with the ending .npz, got 'a.txt'" in error_of(
        ["embed", copy, "--out", "a.txt"], capsys
    )
