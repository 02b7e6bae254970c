"""Tests of the documentation: programs print the output shown, commands parse, links resolve."""

import doctest
import functools
import importlib
import inspect
import json
import re
import runpy
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from hub_server import fake_hub
from m3g.cli import main, train
from m3g.cli.main import COMMANDS
from sessions import run_console

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = ("_build", "gallery", "generated")  # folders that a build writes
PAGES = sorted(
    page for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] if not set(BUILT) & set(page.relative_to(ROOT).parts)
)


def name(page):
    return page.relative_to(ROOT).as_posix()


def fenced(page):
    """The fenced blocks of a page with their languages; "" is a block without one."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def blocks(page, *languages):
    return [text for language, text in fenced(page) if language in languages]


def with_programs():
    for page in PAGES:
        texts = blocks(page, "python", "pycon", "console")
        if texts:
            slow = [pytest.mark.slow] if "torch.compile(" in "".join(texts) or blocks(page, "console") else []
            yield pytest.param(page, id=name(page), marks=slow)


# Warnings of Lightning and inductor.
@pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*have no .validation_step.", "ignore:.*LeafSpec"
)
@pytest.mark.filterwarnings("ignore:The .srun. command is available")  # where Slurm is installed
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("page", list(with_programs()))
def test_programs_run_and_sessions_print_the_output_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Without the compiler of the default backend, which takes a minute; tests/losses/test_compiled.py runs it.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    names: dict = {"__name__": "__main__"}
    with fake_hub(monkeypatch, tmp_path / "hf") if page.name == "hub.md" else nullcontext():
        run_blocks(page, names)
    torch._dynamo.reset()


def run_blocks(page, names):
    for language, text in fenced(page):
        if language == "console":
            run_console(text)
        elif language not in ("python", "pycon"):
            continue
        elif text.startswith(">>> "):
            runner = doctest.DocTestRunner()
            session = doctest.DocTestParser().get_doctest(text, names, name(page), name(page), 0)
            runner.run(session, clear_globs=False)
            names = session.globs
            assert runner.tries > 0
            assert runner.failures == 0
        else:
            exec(text, names)


def test_the_program_of_the_readme_prints_what_is_shown(capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program, output = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", readme, flags=re.M | re.S).groups()
    exec(program, {})
    assert capsys.readouterr().out == output


def test_the_speed_table_of_the_readme_is_the_one_measured():
    table = runpy.run_path(str(ROOT / "benchmarks" / "readme_table.py"))
    rows = json.loads(table["SOLVERS"].read_text())["rows"]
    assert table["START"] + table["table"](rows) + table["END"] in table["README"].read_text(encoding="utf-8")


def commands(page):
    """The m3g commands on a page, each without what follows as a comment, and the line below it."""
    for text in blocks(page, "", "bash", "text"):
        start = r"\$ " if re.search(r"^\$ ", text, flags=re.M) else ""  # in a session, other lines are output
        # "m3g on 630 rows …" is the first line that a training prints, not a command.
        for match in re.finditer(rf"^{start}m3g (?!on \d)(.*)\n(.*)", text, flags=re.M):
            yield re.split(r" {2,}| > |#", match[1])[0].strip(), match[2]


@pytest.fixture
def parsed(monkeypatch, tmp_path, capsys):
    """Parse a command and its settings without running it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("loss: m3g\n")
    for module in {module for module, _ in COMMANDS.values()}:
        monkeypatch.setattr(f"m3g.cli.{module}.run", lambda args, name: 0)
    monkeypatch.setattr(train, "run", lambda args, name: 0 * bool(train.settings(args)))
    monkeypatch.setattr(sys.modules["m3g.cli.main"], "_open_runs", lambda runs: None)

    def parse(command):
        words = [word for word in shlex.split(command) if word not in ("...", "…", "--help")]
        assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"

    return parse


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(page))], ids=name)
def test_commands_parse(page, parsed):
    for command, below in commands(page):
        reads_run = "--config runs/" in command  # a file that another command writes
        if not reads_run and not below.startswith("m3g: error"):
            parsed(command)


def test_errors_are_those_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("sound.npy", np.zeros((9, 2)))
    np.save("kind.npy", np.array(["brass", "reed"] * 4 + ["brass"]))
    Path("runs/m3g-1").mkdir(parents=True)
    shown = [case for page in PAGES for case in commands(page) if case[1].startswith("m3g: error")]
    assert shown
    for command, message in shown:
        assert main(shlex.split(command)) == 2
        assert capsys.readouterr().err.strip() == message


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_files_resolve(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"(?:\]\(|src=\")([\w/.-]+\.\w+)", text):
        path = page.parent / target
        if "gallery" in path.parts:  # written by a build, from the programs of how_it_works
            step = path.stem.removeprefix("sphx_glr_").rsplit("_0", 1)[0]
            path = DOCS / "how_it_works" / ("GALLERY_HEADER.rst" if step == "index" else f"{step}.py")
        assert path.exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("package", ["m3g", "losses", "nets", "data", "evaluation", "training"])
def test_every_public_object_has_a_page(package):
    listed = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    rows = set(re.findall(r"^   (\w+)$", listed, flags=re.M))
    module = importlib.import_module("m3g" if package == "m3g" else f"m3g.{package}")
    public = [public for public in module.__all__ if callable(getattr(module, public))]
    assert not set(public) - rows
    assert all(inspect.getdoc(getattr(module, public)) for public in public)
