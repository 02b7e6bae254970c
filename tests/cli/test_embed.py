"""`m3g embed` writes new files only."""

from fixtures import fails


def test_embeddings_go_to_a_new_npz_file(copy, capsys):
    assert "--out must be a file name with the ending .npz, got 'a.txt'" in fails(
        ["embed", copy, "--out", "a.txt"], capsys
    )
