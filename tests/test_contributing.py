"""What CONTRIBUTING shows works as it stands there."""

import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from lyceum.core import component
from lyceum.core.settings import Composition
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.flat import Flat

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return textwrap.dedent(found)


@pytest.fixture
def median(tmp_path):
    """The example's module, its kind known for one test."""
    file = tmp_path / "my_method.py"
    file.write_text(block("python"))
    spec = importlib.util.spec_from_file_location("my_method", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del component._registry["credit"]["median"]


def test_the_example_is_a_credit_and_its_recipe_is_read(median, tmp_path):
    # Median of (0, 1, 4) is 1: deviations -1, 0, 3, and 3 is beyond the limit of 2.
    centred = median.median_centred(torch.tensor([0.0, 1, 4]), torch.zeros(3, dtype=torch.long), limit=2.0)
    assert centred.tolist() == [-1, 0, 2]
    (tmp_path / "my-method.yaml").write_text(block("yaml"))
    recipe = load_recipe(str(tmp_path / "my-method.yaml"))
    assert isinstance(recipe.stages[0].credit, median.Median)
    assert median.Median().conflicts(Composition(rollout=Flat(samples=1))), "one row has nothing to be compared with"


def test_the_example_is_in_the_projects_style(tmp_path):
    file = tmp_path / "my_method.py"
    file.write_text(block("python"))
    config = str(Path(__file__).parents[1] / "pyproject.toml")
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run([*ruff, *command, "--config", config, str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_make_runs_is_there():
    root = Path(__file__).parents[1]
    text = (root / "Makefile").read_text()
    modules = set(re.findall(r"-m (lyceum\.[\w.]+)", text))
    files = set(re.findall(r"(?:tests|benchmarks)/[\w/]+\.py", text))
    assert modules
    assert files
    assert all(importlib.util.find_spec(module) for module in modules)
    assert all((root / file).is_file() for file in files)
