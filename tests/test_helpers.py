"""A file that begins with ``_`` is a helper of its folder: no other folder imports it."""

import ast
from pathlib import Path

import lyceum

PACKAGE = Path(lyceum.__file__).parent


def test_helpers_are_imported_in_their_own_folder_alone():
    found = []
    for file in PACKAGE.rglob("*.py"):
        folder = ("lyceum", *file.parent.relative_to(PACKAGE).parts)
        for node in ast.walk(ast.parse(file.read_text())):
            for name in imported(node):
                parts = name.split(".")
                helper = next((i for i, part in enumerate(parts) if part.startswith("_") and part != "__main__"), None)
                if parts[0] == "lyceum" and helper is not None and folder[:helper] != tuple(parts[:helper]):
                    found.append(f"{file.relative_to(PACKAGE)}: {name}")
    assert found == []


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
    return []
