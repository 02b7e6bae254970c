"""`m3g embed` writes new files only."""

from fixtures import fails


def test_embeddings_go_to_a_new_npz_file(copy, capsys):
    assert "--out must be the name of an .npz file, got 'a.txt'" in fails(["embed", copy, "--out", "a.txt"], capsys)
