"""``pytest --since COMMIT``: where nothing changed but papers' folders and their tests, other papers' are left out.

A paper's are its test files (``tests/papers/test_NAME*.py``) and the proofs of its recipes. Any other change in ``src``
or ``tests`` may reach every paper: then nothing is left out.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"src/lyceum/papers/(?P<folder>\w+)/|tests/papers/test_(?P<test>\w+)\.py$")
OF_THE_LIBRARY = ("src/", "tests/", "pyproject.toml", "constraints")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--since", metavar="COMMIT", help="leave out the tests of papers where nothing changed since then")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (since := config.getoption("--since")) is None or (changed := papers_of(files_since(since))) is None:
        return
    kept = [item for item in items if (paper := paper_of_test(item)) is None or paper in changed]
    config.hook.pytest_deselected(items=[item for item in items if item not in {*kept}])
    items[:] = kept


def files_since(commit: str) -> list[str]:
    """Files that differ from a commit's, and those that git does not know yet."""
    commands = (["git", "diff", "--name-only", commit, "--"], ["git", "ls-files", "--others", "--exclude-standard"])
    found: list[str] = []
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise pytest.UsageError(f"--since: got {commit!r}: {done.stderr.strip()}")
        found += done.stdout.splitlines()
    return found


def papers_of(files: Iterable[str]) -> set[str] | None:
    """The folders of the papers that these files belong to; None if one of them is of the library."""
    found: set[str] = set()
    for file in files:
        if place := PLACE.match(file):
            paper = place["folder"] or paper_of_file(place["test"])
            if paper is None:
                return None
            found.add(paper)
        elif file.startswith(OF_THE_LIBRARY):
            return None
    return found


def paper_of_file(name: str) -> str | None:
    """The folder whose name a test file's begins with, the longest: ``drm_scorer_judge`` is ``drm``'s."""
    folders = [folder.name for folder in (ROOT / "src/lyceum/papers").iterdir() if (folder / "__init__.py").is_file()]
    return max((it for it in folders if name == it or name.startswith(f"{it}_")), key=len, default=None)


def paper_of_test(item: pytest.Item) -> str | None:
    """The folder that a test is about; None for those of the library."""
    from lyceum.recipe.files import folder_of_recipe

    if item.path.parent == ROOT / "tests/papers":
        return paper_of_file(item.path.stem.removeprefix("test_"))
    if (
        item.path.name != "test_every_recipe.py"
        or not isinstance(item, pytest.Function)
        or "callspec" not in vars(item)
    ):
        return None
    folder = folder_of_recipe(str(item.callspec.params["name"]))
    return None if folder is None else folder.path.name
