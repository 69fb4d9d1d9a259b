"""Move what one paper alone uses into src/lyceum/papers/NAME. Runs on a checkout whose plug-in (core/paper_folders.py) is there.

    PYTHONPATH=CHECKOUT/src python /tmp/w/move_papers.py CHECKOUT [--dry-run] [--only RECIPE...] [--not RECIPE...]

Re-runnable: what is in a folder already stays there. Decides by: rows of papers.jsonl and BESIDES, the recipes as they are
loaded (which component classes each holds), and the import graph of src/lyceum.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("checkout", type=Path)
parser.add_argument("--dry-run", action="store_true")
parser.add_argument("--only", nargs="*", default=[])
parser.add_argument("--not", nargs="*", default=[], dest="never")
options = parser.parse_args()
ROOT = options.checkout.resolve()
PACKAGE = ROOT / "src/lyceum"
TESTS = ROOT / "tests"
sys.path.insert(0, str(ROOT / "src"))

from lyceum.core.paper_folders import SLOTS, shipped  # noqa: E402
from lyceum.recipe.files import read_merged, recipe_names  # noqa: E402


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


# --- which recipe holds which components -------------------------------------------------------------------------

def named_by(raw, key=""):
    """(slot or "", text) of every text in a recipe's plain values, by the nearest key that names a slot."""
    if isinstance(raw, dict):
        for name, value in raw.items():
            room = {"replay": "buffer", "evaluate": key}.get(name, name)
            # an unknown key keeps its room, and may be of any
            yield from named_by(value, key if name == "kind" else room if room in SLOTS else "")
    elif isinstance(raw, list):
        for value in raw:
            yield from named_by(value, key)
    elif isinstance(raw, str):
        yield key, raw


# --- modules and imports -----------------------------------------------------------------------------------------

def dotted(file):
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {dotted(file): file for file in PACKAGE.rglob("*.py")}
TREES = {name: ast.parse(file.read_text()) for name, file in FILES.items()}


def names_in(tree):
    """What a module imports, and what it names in texts as modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"lyceum(\.\w+)+", node.value):
            yield node.value


IMPORTS = {name: {each for each in names_in(tree) if each in FILES} - {name} for name, tree in TREES.items()}
IMPORTERS = defaultdict(set)
for name, of in IMPORTS.items():
    for each in of:
        IMPORTERS[each].add(name)


def kinds_of(tree):
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if (
                    isinstance(line, ast.AnnAssign)
                    and isinstance(line.target, ast.Name)
                    and line.target.id == "kind"
                    and isinstance(line.value, ast.Constant)
                    and "Literal" in ast.unparse(line.annotation)
                ):
                    found.append(line.value.value)
    return found


def slot_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) == 3 and parts[1] in SLOTS else None


COMPONENT = {}
for name, tree in TREES.items():
    if (slot := slot_of(name)) and not name.split(".")[-1].startswith("_") and (kinds := kinds_of(tree)):
        COMPONENT[name] = (slot, kinds)


def movable(module):
    """Whether a component's module can be found by its file's name in a folder."""
    slot, kinds = COMPONENT[module]
    text = FILES[module].read_text()
    return kinds == [module.split(".")[-1].replace("_", "-")] and "__file__" not in text and "files(" not in text


# --- papers ------------------------------------------------------------------------------------------------------

JSONL = PACKAGE / "recipe/papers.jsonl"
LINES = JSONL.read_text().splitlines()
ROWS = [json.loads(line) for line in LINES]
from lyceum.recipe.papers import BESIDES  # noqa: E402

in_folders = {name for folder in shipped() for name in folder.recipes}
count = defaultdict(int)
for row in ROWS:
    for name in row.get("recipes", ()):
        count[name] += 1
PAPERS = []  # (recipes, row or None)
for row in ROWS:
    recipes = row.get("recipes", [])
    if recipes and all(count[name] == 1 and name not in in_folders for name in recipes):
        PAPERS.append((recipes, row))
PAPERS += [([name], None) for name in BESIDES if not count[name] and name not in in_folders]
assert len({name for recipes, _ in PAPERS for name in recipes}) == sum(len(recipes) for recipes, _ in PAPERS)

USERS = defaultdict(set)  # module -> recipes
by_kind = defaultdict(list)
for module, (slot, kinds) in COMPONENT.items():
    for kind in kinds:
        by_kind[kind].append((slot, module))
for name in recipe_names():
    for slot, text in named_by(read_merged(name)):
        for of, module in by_kind.get(text, ()):
            if slot in ("", of):
                USERS[module].add(name)
# What the library's own settings take by default, it uses itself.
for name, tree in TREES.items():
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("of_kind", "slot", "find"):
            for each in node.args:
                if isinstance(each, ast.Constant):
                    for _, module in by_kind.get(each.value, ()):
                        IMPORTERS[module].add(name)


def own_modules(recipes):
    """The modules that can move with a paper: components and what they alone import."""
    inside = {m for m in COMPONENT if USERS[m] and USERS[m] <= set(recipes) and movable(m)}
    while True:
        before = set(inside)
        # A helper of the slot, or a file of core, that only these read.
        for module in FILES:
            parts = module.split(".")
            is_helper = len(parts) == 3 and (parts[1] in SLOTS or parts[1] == "core") and module not in COMPONENT
            text_ok = is_helper and "__file__" not in FILES[module].read_text()
            if text_ok and IMPORTERS[module] and IMPORTERS[module] <= inside and FILES[module].name != "__init__.py":
                inside.add(module)
        inside = {m for m in inside if IMPORTERS[m] <= inside}
        # helpers whose reader has gone
        inside = {m for m in inside if m in COMPONENT or IMPORTERS[m]}
        if inside == before:
            return inside


MOVES = {}  # old module -> (folder, file name)
FOLDERS = {}  # folder -> (recipes, row, modules)
taken_by = {}
for recipes, row in PAPERS:
    if set(recipes) & set(options.never) or (options.only and not set(recipes) & set(options.only)):
        continue
    modules = own_modules(recipes)
    if not any(m in COMPONENT for m in modules):
        continue
    folder = recipes[0].replace("-", "_")
    FOLDERS[folder] = (recipes, row, modules)
    names = set()
    for module in sorted(modules):
        stem = module.split(".")[-1]
        if module in COMPONENT:
            slot, (kind,) = COMPONENT[module]
            new = f"{slot}_{kind.replace('-', '_')}"
        else:
            new = f"_{stem.lstrip('_')}"
            if new in names:
                new = f"_{module.split('.')[1]}_{stem.lstrip('_')}"
        assert new not in names
        names.add(new)
        MOVES[module] = (folder, new)

# --- tests -------------------------------------------------------------------------------------------------------

TEST_MOVES = {}
stems = defaultdict(list)
for file in TESTS.rglob("test_*.py"):
    stems[file.stem].append(file)
for folder, (recipes, row, modules) in FOLDERS.items():
    found = []
    for module in sorted(modules):
        parts = module.split(".")
        file = TESTS / parts[1] / f"test_{parts[2].lstrip('_')}.py"
        if file.exists():
            found.append((file, parts[1], parts[2].lstrip("_")))
    for name in recipes:
        for file in stems[f"test_{name.replace('-', '_')}"]:
            if file not in [f for f, *_ in found] and file.parent.name in SLOTS:
                own = {m for m in names_in(ast.parse(file.read_text())) if m in MOVES}
                if own and own <= modules:
                    found.append((file, file.parent.name, file.stem.removeprefix("test_")))
    # One that names what another paper's folder gets stays where it is.
    found = [
        each for each in found if {m for m in names_in(ast.parse(each[0].read_text())) if m in MOVES} <= set(modules)
    ]
    for file, slot, stem in found:
        new = f"test_{folder}" if len(found) == 1 else f"test_{folder}_{slot}"
        if len([1 for _, of, _ in found if of == slot]) > 1:
            new = f"test_{folder}_{slot}_{stem}" if stem != folder else f"test_{folder}_{slot}"
        TEST_MOVES[file] = TESTS / "papers" / f"{new}.py"
moved_from = set(TEST_MOVES)
for file, new in TEST_MOVES.items():
    clash = [each for each in stems[new.stem] if each not in moved_from]
    if clash:
        TEST_MOVES[file] = new.with_name(f"{new.stem}_paper.py")
assert len(set(TEST_MOVES.values())) == len(TEST_MOVES)


def lines(file):
    return len(file.read_text().splitlines())


components = [m for m in MOVES if m in COMPONENT]
print(f"{len(FOLDERS)} folders, {len(components)} components, {len(MOVES) - len(components)} helpers, "
      f"{sum(lines(FILES[m]) for m in MOVES)} lines; {len(TEST_MOVES)} test files, {sum(map(lines, TEST_MOVES))} lines; "
      f"{sum(len(recipes) for recipes, *_ in FOLDERS.values())} recipes")
single = [m for m in COMPONENT if len(USERS[m]) == 1 and m not in MOVES]
why = defaultdict(list)
papers_recipes = {name for recipes, _ in PAPERS for name in recipes}
for m in single:
    (recipe,) = USERS[m]
    if not movable(m):
        reason = "several kinds in a file, another name, or reads files beside it"
    elif recipe not in papers_recipes:
        reason = "its recipe has no paper, or is moved or listed twice"
    elif IMPORTERS[m]:
        reason = "imported elsewhere"
    else:
        reason = "left out by --only or --not"
    why[reason].append(m.removeprefix("lyceum."))
print(f"{len(COMPONENT)} component files in slots before; of one recipe alone that stay: {len(single)}")
for reason, of in why.items():
    print(f"  {reason}: {len(of)}: {' '.join(sorted(of))}")
if options.dry_run:
    for folder, (recipes, row, modules) in sorted(FOLDERS.items()):
        print(folder, recipes, *sorted(m.removeprefix("lyceum.") for m in modules))
    sys.exit()

# --- move --------------------------------------------------------------------------------------------------------

NEW = {old: f"lyceum.papers.{folder}.{name}" for old, (folder, name) in MOVES.items()}
PLACES = {}  # as texts name files -> as they are named now
for old, (folder, name) in MOVES.items():
    _, room, stem = old.split(".")
    PLACES[f"{room}/{stem}.py"] = f"papers/{folder}/{name}.py"
for folder, (recipes, row, modules) in FOLDERS.items():
    for recipe in recipes:
        PLACES[f"recipes/{recipe}.yaml"] = f"papers/{folder}/{'recipe' if len(recipes) == 1 else recipe}.yaml"
for file, new in TEST_MOVES.items():
    PLACES[f"tests/{file.relative_to(TESTS)}"] = f"tests/{new.relative_to(TESTS)}"

PROOFS = TESTS / "recipe/proofs.py"
proofs_text = PROOFS.read_text()
proofs_tree = ast.parse(proofs_text)
proofs_lines = proofs_text.splitlines(keepends=True)
imported = {a.name for n in proofs_tree.body if isinstance(n, ast.ImportFrom) for a in n.names if n.module == "lyceum.recipe.proof"}
constants = {}  # name -> text
for number, node in enumerate(proofs_tree.body):
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        end = node.end_lineno
        after = proofs_tree.body[number + 1] if number + 1 < len(proofs_tree.body) else None
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            end = after.end_lineno
        constants[node.targets[0].id] = (node, "".join(proofs_lines[node.lineno - 1 : end]), node.lineno - 1, end)
table = next(n for n in proofs_tree.body if isinstance(n, ast.AnnAssign) and n.target.id == "LINES").value
starts = [key.lineno - 1 for key in table.keys] + [table.end_lineno - 1]
entry = {}
for number, (key, value) in enumerate(zip(table.keys, table.values)):
    entry[key.value] = (starts[number], starts[number + 1], value)


def names_used(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def proof_file(recipes):
    body, used = "PROOFS = {\n", set()
    for recipe in recipes:
        if recipe not in entry:
            continue
        begin, end, value = entry[recipe]
        body += "".join(proofs_lines[begin:end])
        used |= names_used(value)
    body += "}\n"
    own, todo = [], [name for name in used if name in constants]
    while todo:
        name = todo.pop()
        if name in [n for n, _ in own]:
            continue
        own.insert(0, (name, constants[name][1]))
        more = names_used(constants[name][0].value)
        used |= more
        todo += [each for each in more if each in constants]
    of_library = sorted(used & imported)
    # a constant after those that it reads
    own.sort(key=lambda pair: constants[pair[0]][2])
    head = '"""What shows that the mechanism acts."""\n\n' + f"from lyceum.recipe.proof import {', '.join(of_library)}\n\n"
    return head + "".join(text + "\n" for _, text in own) + body


def move(old, new):
    new.parent.mkdir(parents=True, exist_ok=True)
    git("mv", str(old), str(new))


for folder, (recipes, row, modules) in FOLDERS.items():
    place = PACKAGE / "papers" / folder
    place.mkdir(parents=True, exist_ok=True)
    raw = read_merged(recipes[0])
    title = row["title"] if row else str(raw["title"])
    number = row.get("arxiv", "") if row else str(raw.get("paper", "")).removeprefix("arXiv:")
    text = f"{title}{f', arXiv:{number}' if number else ''}".replace('"', "'")
    if len(text) > 112:
        import textwrap

        first, *rest = textwrap.wrap(text, 112)
        (place / "__init__.py").write_text(f'"""{first}\n' + "".join(f"{line}\n" for line in rest) + '"""\n')
    else:
        (place / "__init__.py").write_text(f'"""{text}."""\n')
    if row is None:
        about = BESIDES[recipes[0]]
        said = {"family": about.family, "after": about.after, **({"code": about.code} if about.code else {})}
    else:
        said = {key: value for key, value in row.items() if key != "recipes" or sorted(value) != value}
    (place / "row.json").write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    if any(recipe in entry for recipe in recipes):
        (place / "proof.py").write_text(proof_file(recipes))
    for recipe in recipes:
        move(PACKAGE / f"recipes/{recipe}.yaml", place / f"{'recipe' if len(recipes) == 1 else recipe}.yaml")
    for module in modules:
        move(FILES[module], place / f"{MOVES[module][1]}.py")
    git("add", str(place))
for file, new in TEST_MOVES.items():
    move(file, new)

gone = {name for recipes, *_ in FOLDERS.values() for name in recipes}
drop = {number for name in gone if name in entry for number in range(entry[name][0], entry[name][1])}
text = "".join(line for number, line in enumerate(proofs_lines) if number not in drop)
for name, (node, own, _, _) in constants.items():
    if name not in ("LINES", "PROOFS") and len(re.findall(rf"\b{name}\b", text)) == 1:
        text = text.replace(own, "")
PROOFS.write_text(re.sub(r"\n{4,}", "\n\n\n", text))
moved_rows = [row for _, row, _ in FOLDERS.values() if row]
JSONL.write_text("".join(f"{line}\n" for line, row in zip(LINES, ROWS) if row not in moved_rows))
papers_py = PACKAGE / "recipe/papers.py"
text = papers_py.read_text()
for name in [recipes[0] for recipes, row, _ in FOLDERS.values() if row is None]:
    text, n = re.subn(rf'^    "{name}": Besides\(.*\),\n', "", text, flags=re.M)
    assert n == 1, name
papers_py.write_text(text)

# --- rewrite -----------------------------------------------------------------------------------------------------

def rewrite_from(text):
    """``from lyceum.credit import hapo``: the module is another's now."""
    tree = ast.parse(text)
    source = text.splitlines(keepends=True)
    for node in sorted((n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module), key=lambda n: -n.lineno):
        moved = [a for a in node.names if f"{node.module}.{a.name}" in NEW]
        if not moved:
            continue
        indent = " " * node.col_offset
        kept = [a for a in node.names if a not in moved]
        made = []
        if kept:
            made.append(f"{indent}from {node.module} import " + ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in kept) + "\n")
        for a in moved:
            package, _, name = NEW[f"{node.module}.{a.name}"].rpartition(".")
            made.append(f"{indent}from {package} import {name} as {a.asname or a.name}\n")
        source[node.lineno - 1 : node.end_lineno] = made
    return "".join(source)


modules_pattern = re.compile(r"\blyceum\.(?:" + "|".join(re.escape(m.removeprefix("lyceum.")) for m in sorted(NEW, key=len, reverse=True)) + r")(?!\w)")
places_pattern = re.compile(r"(?<![\w/])((?:src/lyceum/|\.\./src/lyceum/)?)(" + "|".join(re.escape(p) for p in sorted(PLACES, key=len, reverse=True)) + r")(?!\w)")
changed = 0
listed = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
for each in listed:
    file = ROOT / each
    if file.suffix not in (".py", ".md", ".yaml", ".yml", ".toml", ".json") or not file.is_file() or file.is_symlink():
        continue
    if (each.startswith("benchmarks/results/") and not each.endswith("/mends.json")) or each == "CHANGELOG.md":
        continue
    old = file.read_text()
    new = rewrite_from(old) if file.suffix == ".py" and "lyceum" in old else old
    new = modules_pattern.sub(lambda m: NEW[m[0]], new)
    new = places_pattern.sub(lambda m: m[1] + PLACES[m[2]], new)
    if new != old:
        file.write_text(new)
        changed += 1
python = str(ROOT / ".venv/bin/python")
ruff = [str(ROOT / ".venv/bin/ruff")]
for words in (["check", "--fix", "-q", "."], ["format", "-q", "."]):
    subprocess.run([*ruff, *words], cwd=ROOT, check=False)
if (ROOT / "docs/papers.md").exists():
    done = subprocess.run([python, "-m", "lyceum.recipe.papers"], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"})
    print(done.stderr[-2000:])
    if done.returncode == 0:
        (ROOT / "docs/papers.md").write_text(done.stdout)
print(f"{changed} files rewritten")
