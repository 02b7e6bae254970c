"""The kinds of cells."""

from m3g.data import Objects


def test_the_word_infinity_is_text(tmp_path):
    content = "".join(f"{'infinity' if i == 7 else f'a sign {i}'},{i * i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"name,x\n{content}")
    assert Objects(tmp_path / "t.csv").view_names == ["name", "table"]
