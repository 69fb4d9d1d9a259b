"""How lyceum's source is built: lines, imports between its parts, undeclared contracts, files on the way of one step.

Nothing of the checkout is named here but its command line, so that an old layout and a new one are measured alike:

    python benchmarks/structure.py --out structure.json [CHECKOUT]
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DEFINITIONS = {
    "lines": "of src, without blank lines, comments and docstrings; all: every line",
    "entries": "modules and packages at the top of lyceum",
    "arrows": "pairs (a, b) of entries where a module of a imports one of b, wherever in the module the import stands",
    "backwards": "arrows from a lower layer to a higher one, by the layers of [tool.importlinter]; without layers "
    "mutual pairs, a imports b and b imports a",
    "backwards_for_types": "the same below `if TYPE_CHECKING`, which a type checker alone follows; not counted there",
    "slots": "fields Annotated[Any, slot(...)]",
    "protocol_any": "Any in the body of classes that are Protocols",
    "files_of_a_step": "modules of lyceum of which a function is called from the beginning of the second training step "
    "of TRAIN to its end (from one update of the optimiser to the next)",
    "files_to_the_first_gradient": "the same from the command line to the end of the first backward pass; what runs "
    "while a module is imported does not count",
}
TRAIN = (
    *("train", "grpo", "model=base", "steps=2", "tasks_per_step=8", "rollout.samples=8"),
    *("rollout.sampling.max_completion_tokens=48", "evaluate.n=0", "track=[]", "name=structure"),
)
"""The command whose step is followed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="How lyceum's source is built.")
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--quick", action="store_true", help="what the text tells alone, no step is run")
    parser.add_argument("--names", action="store_true", help="print the arrows that run backwards, and the files")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    found = source(checkout) | ({} if given.quick else step(checkout))
    for name, value in found.items():
        print(f"{name:32}{len(value) if isinstance(value, list) else value}")
        if given.names and isinstance(value, list) and name != "arrows":
            print(*(f"    {' -> '.join(each) if isinstance(each, list) else each}" for each in value), sep="\n")
    if given.out:
        given.out.write_text(json.dumps({**found, "definitions": DEFINITIONS, "train": TRAIN}, indent=1) + "\n")


def source(checkout: Path) -> dict[str, Any]:
    """What the text of ``src/lyceum`` tells."""
    package = checkout / "src" / "lyceum"
    texts = {module_of(file, package): file.read_text("utf-8") for file in sorted(package.rglob("*.py"))}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    entries = sorted({module.split(".")[1] for module in trees if "." in module})
    pairs = sorted(arrows(trees))
    running = sorted(arrows(trees, running=True))
    layers = layers_of(checkout)
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    calls = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return {
        "lines": sum(code_lines(text, trees[module]) for module, text in texts.items()),
        "all_lines": sum(len(text.splitlines()) for text in texts.values()),
        "modules": len(texts),
        "entries": entries,
        "arrows": [list(pair) for pair in pairs],
        "layers": "import-linter" if layers else "none: mutual pairs",
        "backwards": [list(pair) for pair in backwards(running, layers)],
        "backwards_for_types": [list(p) for p in backwards(pairs, layers) if p not in backwards(running, layers)],
        "hasattr": calls.count("hasattr"),
        "getattr": calls.count("getattr"),
        "protocol_any": sum(names_in(node).count("Any") for node in nodes if is_protocol(node)),
        "slots": sum(is_untyped_slot(node) for node in nodes),
    }


def module_of(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that hold more than a comment or a docstring (a text that stands alone, under a setting too)."""
    lines = text.splitlines()
    idle = {number for number, line in enumerate(lines, 1) if not line.strip() or line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            idle.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines) - len(idle)


def arrows(trees: dict[str, ast.Module], *, running: bool = False) -> set[tuple[str, str]]:
    """(importing, imported) entries, each pair once, none with itself; ``running`` leaves out those for types alone."""
    found = {
        (module.split(".")[1], target.split(".")[1])
        for module, tree in trees.items()
        for target in imports(tree, trees, running=running)
        if "." in module and "." in target
    }
    return {(a, b) for a, b in found if a != b}


def imports(tree: ast.Module, modules: dict[str, ast.Module], *, running: bool) -> Iterator[str]:
    """The modules that a module imports, the package's own (``from lyceum import progress``) resolved."""
    for node in statements(tree, running=running):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in modules else node.module


def statements(tree: ast.AST, *, running: bool) -> Iterator[ast.AST]:
    """All statements of a module, what holds some (a handler, a case) among them; ``running`` without those below ``if
    TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):  # holds no statement
            continue
        if running and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (inner for other in node.orelse for inner in (other, *statements(other, running=running)))
            continue
        yield node
        yield from statements(node, running=running)


def layers_of(checkout: Path) -> list[set[str]]:
    """The layers of import-linter's first contract of that type, the highest first; none where there is none."""
    settings = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    contracts = settings.get("tool", {}).get("importlinter", {}).get("contracts", [])
    layers = next((contract["layers"] for contract in contracts if contract.get("type") == "layers"), [])
    # "a | b" and "a : b" stand beside each other; "(a)" need not be there; names may begin with the container's.
    return [{name.strip(" ()").split(".")[-1] for name in layer.replace(":", "|").split("|")} for layer in layers]


def backwards(pairs: Sequence[tuple[str, str]], layers: Sequence[set[str]]) -> list[tuple[str, str]]:
    """Arrows from a lower layer to a higher one; without layers, each mutual pair once."""
    if not layers:
        return [(a, b) for a, b in pairs if a < b and (b, a) in pairs]
    height = {name: -number for number, names in enumerate(layers) for name in names}
    return [(a, b) for a, b in pairs if a in height and b in height and height[a] < height[b]]


def names_in(node: ast.AST) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("Protocol" in names_in(base) for base in node.bases)


def is_untyped_slot(node: ast.AST) -> bool:
    """``Annotated[Any, slot("credit", ...)]``."""
    return (
        isinstance(node, ast.Subscript)
        and names_in(node.value) == ["Annotated"]
        and isinstance(node.slice, ast.Tuple)
        and names_in(node.slice.elts[0]) == ["Any"]
        and any("slot" in names_in(part) for part in node.slice.elts[1:])
    )


def step(checkout: Path) -> dict[str, Any]:
    """The modules that a process of the checkout's own passes on the way to its first gradient, and in a step."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-c", FOLLOWED, str(checkout / "src" / "lyceum"), str(found), *TRAIN],
            cwd=folder,
            env=environment,
            stdout=sys.stderr,
            check=True,
        )
        return json.loads(found.read_text())


# What the subprocess runs. Every thread is followed: a runtime may have its own.
FOLLOWED = """
import json, sys, threading
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

package, out, *words = sys.argv[1:]
entered, first, steps = set(), None, []
importing = threading.local()

def follow(frame, event, argument):
    code = frame.f_code
    if code.co_name == "<module>" and event in ("call", "return"):
        importing.depth = getattr(importing, "depth", 0) + (1 if event == "call" else -1)
    elif event == "call" and code.co_filename.startswith(package) and not getattr(importing, "depth", 0):
        entered.add(code.co_filename)

def names():
    return sorted(str(Path(file).relative_to(package)) for file in entered)

backward = torch.autograd.backward

def first_gradient(*arguments, **keywords):
    global first
    backward(*arguments, **keywords)
    first = first or names()

torch.autograd.backward = first_gradient

def end_of_update(optimizer, arguments, keywords):
    steps.append(names())
    entered.clear()

register_optimizer_step_post_hook(end_of_update)
threading.setprofile(follow)
sys.setprofile(follow)
from lyceum.cli import main

code = main(words)
sys.setprofile(None)
if code or first is None or len(steps) < 2:
    sys.exit(f"the run ended with {code} after {len(steps)} updates; two are needed")
Path(out).write_text(json.dumps({"files_of_a_step": steps[1], "files_to_the_first_gradient": first}))
"""


if __name__ == "__main__":
    main()
