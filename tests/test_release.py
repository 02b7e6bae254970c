"""Files for distributors agree with the package."""

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
    wanted = {name.replace(">=", " >=").replace("torch ", "pytorch ", 1) for name in project["dependencies"]}
    assert wanted <= set(recipe["requirements"]["run"])


def test_the_dockerfile_copies_what_the_build_needs():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)
