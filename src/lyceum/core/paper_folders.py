"""Papers' folders: each holds what one paper alone uses, and is read by the names of its files.

A folder has a file ``SLOT_KIND.py`` per component (``credit_hapo.py``: kind ``hapo``; ``_`` stands for ``-``), its
recipe ``recipe.yaml``, named after the folder, or several ``NAME.yaml``, ``proof.py``, ``row.json``, and helpers that
begin with ``_``. Those that come with lyceum are in ``lyceum/papers``; the user's are named by a path (:func:`use`), an
installed package's by an entry point of the group ``lyceum.papers``. They are listed and not imported: a component's
file is run when a recipe names its kind.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from types import ModuleType

from lyceum.core.own_code import load_module
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.paths import local_path

SLOTS: Mapping[str, str] = {
    "tasks": "tasks",
    "reward": "reward",
    "scorer": "reward.scorer",
    "stages": "training.stages",
    "curriculum": "curriculum",
    "guidance": "guidance",
    "rollout": "rollout",
    "environment": "environment",
    "constraint": "engine.constraint",
    "value": "value",
    "traces": "data.traces",
    "data": "data",
    "buffer": "data.buffer",
    "credit": "credit",
    "objective": "objective",
    "learner": "learner",
    "engine": "engine",
    "runtime": "runtime",
}
"""Slots of a recipe and of its stages -> the package of lyceum that has its components."""

Folders = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

GROUP = "lyceum.papers"
"""Entry points of installed packages that hold papers; their value is the package of a paper, or of several."""

PROOF, ROW, RECIPE = "proof.py", "row.json", "recipe.yaml"

_COMPONENT = re.compile(rf"({'|'.join(SLOTS)})_([a-z][a-z0-9_]*)\.py")
_BESIDE = re.compile(r"[._].*|proof\.py|test_.*\.py|conftest\.py")
"""Python files that are no component."""
_SHIPPED = Path(__file__).parents[1] / "papers"
_used: list[Path] = []
"""The user's folders, of a paper each or of several."""


@dataclass(frozen=True)
class PaperFolder:
    """One paper's folder.

    Attributes:
        path: the folder; its name with ``-`` for ``_`` is the paper's.
        package: what its modules' names begin with; empty where they are loaded by their files.
        components: (slot, kind) -> file.
        recipes: name -> file.
    """

    path: Path
    package: str
    components: Mapping[tuple[str, str], Path]
    recipes: Mapping[str, Path]

    @property
    def name(self) -> str:
        return self.path.name.replace("_", "-")

    def load(self, file: Path) -> ModuleType:
        """One of its files, imported.

        Raises:
            RecipeError: it fails on import.
        """
        if self.path.parent == _SHIPPED:
            return importlib.import_module(f"{self.package}.{file.stem}")
        return load_module(f"{self.package}.{file.stem}" if self.package else str(file), key="papers")


def use(folders: Folders) -> None:
    """Let this process know papers of the user's own: their recipes by name, their components by kind.

    Args:
        folders: one or more, each of a paper, or of several papers' folders. Their code is trusted, since the user has
            named them.
    Raises:
        RecipeError: one is no folder, or holds what no paper has, or what is there already.
    """
    for folder in [folders] if isinstance(folders, str | os.PathLike) else folders:
        path = local_path(os.fspath(folder)).resolve()
        if path in _used:
            continue
        found = _listed(path, "")
        if not any(each.components or each.recipes for each in found):
            raise RecipeError(f"papers: {path} has neither a recipe nor a component; allowed: {_FORM}")
        _refuse_taken([*folders_of_papers(), *found])
        _used.append(path)


def options() -> list[str]:
    """What names the user's folders on a command line, for a command that is typed again."""
    return [word for path in _used for word in ("--papers", str(path))]


def folders_of_papers() -> Iterator[PaperFolder]:
    """All that are known: lyceum's, then those of installed packages, then the user's.

    Raises:
        RecipeError: one of these cannot be used.
    """
    yield from shipped()
    yield from _installed()  # looked for where lyceum's do not suffice: that takes a tenth of a second
    yield from {each.path: each for path in _used for each in _listed(path, "")}.values()


@cache
def shipped() -> tuple[PaperFolder, ...]:
    """Those that come with lyceum, by name."""
    return tuple(_listed(_SHIPPED, GROUP))  # the package has the name that the group has


@cache
def _installed() -> tuple[PaperFolder, ...]:
    """Those of other packages that are installed."""
    found: list[PaperFolder] = []
    for point in entry_points(group=GROUP):
        places = _places(point.value)
        if not places:
            raise RecipeError(f"papers: the installed {point.name} names {point.value}, and there is no such package")
        found += chain.from_iterable(_listed(Path(place).resolve(), point.value) for place in places)
    _refuse_taken([*shipped(), *found])
    return tuple(found)


def _places(package: str) -> list[str]:
    """Folders of a package, of which no more is imported than the packages above it; none where it cannot be found."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:  # of a package above it
        return []
    return [*((spec and spec.submodule_search_locations) or ())]


def component_files(slot: str) -> Iterator[tuple[PaperFolder, str]]:
    """The kinds that papers have in a slot, each with its folder."""
    for folder in folders_of_papers():
        yield from ((folder, kind) for of, kind in folder.components if of == slot)


def folder_of(file: str | None) -> PaperFolder | None:
    """The paper whose folder holds a file."""
    return next((each for each in folders_of_papers() if file is not None and each.path == Path(file).parent), None)


def is_trusted(place: str) -> bool:
    """Whether a file or a module is in a folder that the user named, or of a package of papers that is installed."""
    if place.endswith(".py"):
        inside = Path(place).parents
        return any(path in inside for path in _used) or any(folder.path in inside for folder in _installed())
    return any(place.startswith(f"{folder.package}.") for folder in _installed())


_FORM = (
    f"the folder of a paper with {RECIPE} or NAME.yaml and files SLOT_KIND.py, such as credit_my_median.py, or one of "
    "such folders"
)


def _listed(path: Path, package: str) -> list[PaperFolder]:
    """A paper's folder, or those of all papers in it, by name."""
    if not path.is_dir():
        raise RecipeError(f"papers: got {str(path)!r}, which is no folder; allowed: {_FORM}")
    entries = sorted(path.iterdir())
    if any(entry.suffix in (".yaml", ".py") and entry.name[0] not in "._" for entry in entries):
        return [_read(path, package)]
    inside = [entry for entry in entries if entry.is_dir() and entry.name[0] not in "._"]
    return [_read(each, f"{package}.{each.name}" if package else "") for each in inside]


def _read(path: Path, package: str) -> PaperFolder:
    components: dict[tuple[str, str], Path] = {}
    recipes: dict[str, Path] = {}
    for file in sorted(path.iterdir()):
        if file.suffix == ".yaml" and file.name[0] != ".":
            recipes[path.name.replace("_", "-") if file.name == RECIPE else file.stem] = file
        elif file.suffix == ".py" and not _BESIDE.fullmatch(file.name):
            components[_named(file)] = file
    return PaperFolder(path, package, components, recipes)


def _named(file: Path) -> tuple[str, str]:
    """Slot and kind of a component by its file's name."""
    if (found := _COMPONENT.fullmatch(file.name)) is None:
        slot = file.stem.partition("_")[0]
        raise RecipeError(
            f"papers: {file} is no SLOT_KIND.py{nearest(slot, SLOTS)}; allowed: a slot ({', '.join(SLOTS)}), _, and a "
            f"kind in small letters; {PROOF}; a helper whose name begins with _; test_NAME.py"
        )
    return found[1], found[2].replace("_", "-")


def _refuse_taken(folders: Iterable[PaperFolder]) -> None:
    """Raise RecipeError where two folders have a component of one kind, or a recipe of one name."""
    of: dict[tuple[str, str], Path] = {}
    for folder in folders:
        named = [*folder.components.items(), *((("recipe", name), file) for name, file in folder.recipes.items())]
        for (slot, kind), file in named:
            taken = of.setdefault((slot, kind), file)
            if slot == "recipe":
                in_slot = _SHIPPED.parent / "recipes" / f"{kind}.yaml"
            else:
                in_slot = _SHIPPED.parent.joinpath(*SLOTS[slot].split("."), f"{kind.replace('-', '_')}.py")
            taken = in_slot if in_slot.is_file() else taken
            if taken != file:
                what = f"{slot} {kind!r}" if slot == "recipe" else f"{slot} kind {kind!r}"
                raise RecipeError(f"papers: {file}: {what} is {taken} already; allowed: another name")
