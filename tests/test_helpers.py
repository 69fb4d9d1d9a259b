"""A file that begins with ``_`` is a helper of its folder: no other imports it, but papers those of the slots.

No file of the library imports a paper, and no paper another.
"""

import ast
import re
from functools import cache
from pathlib import Path

import lyceum
from lyceum.core.paper_folders import SLOTS

PACKAGE = Path(lyceum.__file__).parent


def test_helpers_are_imported_in_their_own_folder_alone():
    found = []
    for place, names in imports().items():
        folder = ("lyceum", *place.parent.parts)
        for name in names:
            parts = name.split(".")
            helper = next((i for i, part in enumerate(parts) if part.startswith("_") and part != "__main__"), None)
            if parts[0] == "lyceum" and helper is not None and folder[:helper] != tuple(parts[:helper]):
                found.append(f"{place}: {name}")
    by_papers = re.compile(rf"papers/.*: lyceum\.({'|'.join(map(re.escape, SLOTS.values()))})\._")
    assert [line for line in found if not by_papers.match(line)] == []


def test_no_paper_is_imported_by_the_library_or_by_another_paper():
    found = []
    for place, names in imports().items():
        own = f"lyceum.papers.{place.parts[1]}." if place.parts[0] == "papers" and len(place.parts) > 2 else "none"
        of_others = [name for name in names if name.startswith("lyceum.papers.") and not f"{name}.".startswith(own)]
        found += [f"{place}: {name}" for name in of_others]
    assert found == []


@cache
def imports() -> dict[Path, list[str]]:
    """What each file of the package imports, by its place there."""
    return {
        file.relative_to(PACKAGE): [n for node in ast.walk(ast.parse(file.read_text())) for n in imported(node)]
        for file in PACKAGE.rglob("*.py")
    }


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
    return []
