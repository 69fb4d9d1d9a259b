"""Recipe files: found by name or path, what they extend filled in. Light: nothing here needs a model's library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from lyceum.component import RecipeError, nearest

SUFFIXES = (".yaml", ".yml")


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            seen |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        return super().construct_mapping(node, deep)


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))


def described_recipes() -> dict[str, dict[str, str]]:
    """Of each of them, {title, paper, summary}."""
    raw = {name: read_raw(name) for name in recipe_names()}
    return {name: {key: str(of.get(key, "")) for key in ("title", "paper", "summary")} for name, of in raw.items()}


def read_raw(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plain values of a recipe file, what it extends filled in.

    Raises:
        RecipeError: no such recipe, a file that is not one, or recipes that extend each other in a circle.
    """
    path = Path(name).expanduser()
    is_file = path.suffix in SUFFIXES
    source = path if is_file else _shipped() / f"{name}.yaml"
    if not source.is_file():
        names = recipe_names()
        known = f"a .yaml file, or one of: {', '.join(names)}"
        raise RecipeError(f"recipe: got {name!r}{nearest(name, names)}; allowed: {known}")
    # Told by the file and not by its name: a file 'grpo.yaml' may well extend the package's 'grpo'.
    here = str(path.resolve()) if is_file else name
    if here in above:
        raise RecipeError(f"extends: {' -> '.join((*above, here))} goes in a circle")
    try:
        raw = _Loader(source.read_text(encoding="utf-8")).get_single_data() or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe: {name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise RecipeError(f"recipe: {name} holds {type(raw).__name__}; allowed: a mapping of keys")
    extends = raw.pop("extends", None)
    if extends is None:
        return raw
    if not isinstance(extends, str):
        raise RecipeError(f"extends: {name} says {extends!r}; allowed: one recipe's name, or a .yaml file")
    base = str(path.parent / extends) if is_file and extends.endswith(SUFFIXES) else extends
    extended = read_raw(base, (*above, here))
    if "title" in raw:
        for key in ("paper", "summary"):  # what has a title of its own is not that paper's method
            extended.pop(key, None)
    return merged(extended, raw)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``. Mappings merge unless the kind changes; lists of as many stages merge one by one."""
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


def number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as a string; here it is a number, at any depth."""
    if isinstance(value, str):
        try:
            return float(value) if "e" in value.lower() and value[0] in "+-.0123456789" else value
        except ValueError:
            return value
    if isinstance(value, list):
        return [number(item) for item in value]
    return {key: number(item) for key, item in value.items()} if isinstance(value, dict) else value


def _shipped() -> Any:
    return files("lyceum") / "recipes"
