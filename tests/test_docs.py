"""The documentation is true: sessions give the outputs shown, programs run, links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page, language):
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("name", ["quickstart.md", "mathematics.md"])
def test_sessions_give_the_outputs_shown(name):
    session = "\n".join(blocks(DOCS / name, "pycon"))
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(session, {}, name, name, 0))
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.parametrize("name", ["index.md", "losses.md"])
def test_programs_run(name):
    torch.manual_seed(0)
    names: dict = {}
    exec("".join(blocks(DOCS / name, "python")), names)
    assert names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w/.-]+\.md)\)", page.read_text(encoding="utf-8")):
        assert (DOCS / target).exists(), f"{page.name} links to {target}"
