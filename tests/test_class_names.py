"""Each class of the library has a name of its own: one that is read in a message or a review is found by searching."""

import ast
from collections import defaultdict
from pathlib import Path

import lyceum

SOURCES = Path(lyceum.__file__).parent


def test_no_class_name_stands_twice():
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert len(found) > 500, "the sources were not found"
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(places)}" for name, places in sorted(twice.items()))
