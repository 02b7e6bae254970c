"""The documentation is true: sessions give the outputs shown, programs run, links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SESSIONS = [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]


def blocks(page):
    """The fenced blocks of Python on a page, programs and sessions."""
    return re.findall(r"^```(?:python|pycon)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.name)
def test_sessions_give_the_outputs_shown(page):
    session = "\n".join(blocks(page))
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(session, {}, page.name, page.name, 0))
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/choose_loss.md"])
def test_programs_run(name):
    torch.manual_seed(0)
    names: dict = {}
    exec("".join(blocks(ROOT / name)), names)
    assert names


# Pages that a build of the documentation writes, and where they come from.
BUILT = {"gallery/index.rst": "how_it_works/GALLERY_HEADER.rst"}
BUILT |= {f"gallery/{step.stem}.rst": f"how_it_works/{step.name}" for step in (ROOT / "docs/how_it_works").glob("*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"(?:\]\(|src=\")([\w/.-]+\.\w+)", page.read_text(encoding="utf-8")):
        found = page.parent / target
        built = (
            found.resolve().relative_to(ROOT / "docs").as_posix() if ROOT / "docs" in found.resolve().parents else ""
        )
        source = ROOT / "docs" / BUILT.get(built, built) if built else found
        assert source.exists(), f"{page.name} links to {target}"
