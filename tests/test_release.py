"""Files for distributors agree with the package."""

import re
from pathlib import Path

import pytest
import yaml

import m3g

ROOT = Path(__file__).parents[1]


def test_the_conda_recipe_has_the_version_and_requirements_of_the_package():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    tomllib = pytest.importorskip("tomllib", reason="the standard library has it from Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == m3g.__version__
    required = {name.replace(">=", " >=").replace("torch ", "pytorch ", 1) for name in project["dependencies"]}
    assert required <= set(recipe["requirements"]["run"])
    scripts = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_dockerfile_copies_what_the_build_needs():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_version_is_written_in_one_place_and_the_recipe():
    paths = ["README.md", "pyproject.toml", "CITATION.cff", "Dockerfile", "docs/quickstart.md", "docs/conf.py"]
    for path in paths:
        assert m3g.__version__ not in (ROOT / path).read_text(encoding="utf-8"), path


def test_the_citation_file_has_what_version_1_2_of_its_format_requires():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert f'license = "{cited["license"]}"' in (ROOT / "pyproject.toml").read_text()
    paper = cited["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = ", ".join(f"{author['given-names'][0]}. {author['family-names']}" for author in paper["authors"])
    assert f"> {names}. {paper['title']}. ICML {paper['year']}." in readme


def test_the_workflow_builds_wheels_and_tests_windows_and_macos():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    assert jobs["platforms"]["strategy"]["matrix"]["os"] == ["windows-latest", "macos-latest"]
    assert "dist" in jobs["lint"]["strategy"]["matrix"]["target"]
    uploads = [step for step in jobs["lint"]["steps"] if step.get("uses", "").startswith("actions/upload-artifact")]
    assert [step["with"]["path"] for step in uploads] == ["dist"]


PAGES = sorted(page for page in (ROOT / "docs/reference").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_of_the_reference_has_a_mark_of_stability(page):
    listed = dict(re.findall(r"^\| \[\]\((\w+)\.md\) \|.*\| (\w+) \|$", (page.parent / "index.md").read_text(), re.M))
    assert f"}}`{listed[page.stem]}`" in page.read_text(encoding="utf-8").splitlines()[2]
