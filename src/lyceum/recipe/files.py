"""Reading recipe files by name or path, with ``extends`` resolved. Light: imports no model library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any

from lyceum.core.paper_folders import PaperFolder, folders_of_papers
from lyceum.utils.documents import DOCUMENT, DocumentError, read_yaml
from lyceum.utils.errors import RecipeError, close
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

SUFFIXES = (".yaml", ".yml")

MOST_EXTENDED = 20
"""Maximum length of a chain of recipes that extend each other."""


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package, and of those in papers' folders."""
    shipped = (entry.name.removesuffix(".yaml") for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))
    return sorted([*shipped, *(name for folder in folders_of_papers() for name in folder.recipes)])


def described_recipes() -> dict[str, dict[str, str]]:
    """Recipe name -> {title, paper, summary}."""
    raw = {name: read_merged(name) for name in recipe_names()}
    return {name: {key: str(of.get(key, "")) for key in ("title", "paper", "summary")} for name, of in raw.items()}


def recipe_text(name: str) -> str:
    """The file of a recipe that is known by its name, with its comments."""
    return _file_of(name).read_text(encoding="utf-8")


def read_merged(name: str) -> dict[str, Any]:
    """The plain values of a recipe file, with ``extends`` resolved.

    Raises:
        RecipeError: as :func:`read_files`.
    """
    return reduce(extended, read_files(name), {})


def read_files(name: str, above: tuple[str, ...] = (), named_by: str = "") -> list[dict[str, Any]]:
    """The plain values of a recipe file, after those of the file that it extends, and so on.

    Args:
        above: files that extend this one, the first first.
        named_by: the file whose key ``extends`` names it, as the user knows it; empty where the user does.
    Raises:
        RecipeError: no such recipe, a file that is not one, or recipes that extend each other in a circle.
    """
    path = local_path(name)
    is_file = path.suffix in SUFFIXES
    source = path if is_file else _file_of(name)
    if not _is_file(source):
        got = f"extends: {named_by} says {quoted(name)}" if named_by else f"recipe: got {quoted(name)}"
        if found := _instead(name, path):
            raise RecipeError(f"{got}{found}")
        names = recipe_names()
        near = ", ".join(map(repr, close(name, names)[:3]))
        known = f"a .yaml file, or a recipe's name; lyceum recipes lists all {len(names)}"
        raise RecipeError(f"{got}{near and f' (did you mean {near}?)'}; allowed: {known}")
    # Identified by the file and not by its name: a file 'grpo.yaml' may extend the package's 'grpo'.
    here = str(path.resolve()) if is_file else name
    if here in above:
        raise RecipeError(f"extends: {' -> '.join((*above, here))} goes in a circle")
    if len(above) == MOST_EXTENDED:
        raise RecipeError(f"extends: {' -> '.join((*above, here))}; allowed: a chain of at most {MOST_EXTENDED}")
    raw = _read(source, name)
    if not isinstance(raw, dict):
        raise RecipeError(f"recipe: {name} holds {type(raw).__name__}; allowed: a mapping of keys")
    extends = raw.pop("extends", None)
    if extends is None:
        return [raw]
    if not isinstance(extends, str):
        raise RecipeError(f"extends: {name} says {quoted(extends)}; allowed: one recipe's name, or a .yaml file")
    base = str(path.parent / extends) if is_file and extends.endswith(SUFFIXES) else extends
    return [*read_files(base, (*above, here), name), raw]


def extended(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe ``base`` with what a file that extends it says; one with its own title is not that paper's method."""
    paper = ("paper", "summary") if "title" in over else ()
    return merged({key: value for key, value in base.items() if key not in paper}, over)


def _instead(name: str, path: Path) -> str:
    """What was named where a recipe should be, and what to name; empty for what may be a misspelt name."""
    if name in ("main_ppo", "verl.trainer.main_ppo", "train_ppo_ray"):
        return ", which trains by many methods; allowed: a recipe for its estimator, such as grpo, ppo, rloo or dapo"
    if name.replace("_", "-") in ("reward", "reward-model", "reward-modeling", "reward-trainer", "rm"):
        return (
            "; allowed: rlmt, which trains a reward model on pairs of its own answers; none trains on pairs of a file"
        )
    if "=" in name:
        return f", a key; allowed: a recipe before it, such as lyceum train grpo {name[:100]}"
    if path.suffix in SUFFIXES:
        meant = path.name.removesuffix(path.suffix)
        near = f" (did you mean {meant!r}, which comes with lyceum?)" if meant in recipe_names() else ""
        return f", and there is no such file{near}; allowed: a .yaml file, or a recipe's name (lyceum recipes)"
    if _is_file(path) and path.suffix in (".py", ".sh"):
        made = f"lyceum convert {name[:100]} makes one of a script of TRL, verl or OpenRLHF"
        return f", a script; allowed: a recipe; {made}"
    if _is_file(path):
        return f", a file; allowed: a recipe, such as lyceum train grpo tasks={name[:100]} for a file of tasks"
    if _is_file(path / "recipe.yaml"):
        return (
            f", a run (did you mean {str(path / 'recipe.yaml')!r}, which trains it again?); allowed: a .yaml file, or "
            f"a recipe's name; curves of runs that are there: tensorboard --logdir {path.parent}"
        )
    return ""


def _is_file(source: Any) -> bool:
    try:
        return source.is_file()
    except OSError:  # a name that is too long
        return False


def _read(source: Any, name: str) -> Any:
    try:
        with source.open("rb") as file:
            content = file.read(4 * DOCUMENT.characters + 1)  # a character has four bytes at most
        return read_yaml(content.decode("utf-8-sig")) or {}
    except (DocumentError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe: {name} is not YAML: {error}") from error
    except OSError as error:
        raise RecipeError(f"recipe: {name} cannot be read: {error.strerror}") from error


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base``. Mappings merge unless the kind changes; stage lists of equal length merge by
    stage."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            same = "kind" not in value or value["kind"] == old.get("kind")
            result[key] = merged(old, value) if same else dict(value)
        elif key == "stages" and isinstance(old, list) and isinstance(value, list) and len(old) == len(value):
            result[key] = [
                merged(a, b) if isinstance(a, Mapping) and isinstance(b, Mapping) else b
                for a, b in zip(old, value, strict=True)
            ]
        else:
            result[key] = value
    return result


def folder_of_recipe(name: str) -> PaperFolder | None:
    """The paper's folder that a recipe stands in."""
    return next((folder for folder in folders_of_papers() if name in folder.recipes), None)


def _file_of(name: str) -> Any:
    """The file of a name, which may not be there."""
    file = _shipped() / f"{name}.yaml"
    folder = None if _is_file(file) else folder_of_recipe(name)
    return file if folder is None else folder.recipes[name]


def _shipped() -> Any:
    return files("lyceum") / "recipes"
