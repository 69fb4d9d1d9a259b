"""The recipes as a person looks for them: those to begin with, groups, a search, and what one changes of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lyceum.analysis.papers import FAMILIES, family_of, papers
from lyceum.core.paper_folders import SLOTS
from lyceum.recipe.files import extended, read_merged, recipe_names, recipe_text
from lyceum.utils.documents import read_yaml

if TYPE_CHECKING:
    from lyceum.recipe.schema import Recipe

FIRST: Mapping[str, str] = {
    "grpo": "answers that can be checked: begin here",
    "sft": "worked solutions to imitate, alone or before reinforcement learning",
    "dpo": "pairs of a better and a worse answer",
    "scaf-grpo": "hints where all answers to a problem fail",
    "calculator": "a tool that the model calls",
}
"""Recipes to begin with, and for what."""

OWN = "own"
GROUPS: Mapping[str, str] = {**FAMILIES, OWN: "Starting points that follow no paper"}
"""Group -> its heading; a paper's family is its recipes' group."""

_ABOUT = ("title", "paper", "summary", "name", "label")
"""Keys that say what a recipe is, and not what it does."""


@dataclass(frozen=True)
class Listed:
    """A recipe in the list.

    Attributes:
        group: a key of ``GROUPS``.
        components: ``SLOT KIND`` of each component that ``grpo`` does not have.
    """

    name: str
    title: str
    paper: str
    summary: str
    group: str
    components: tuple[str, ...]

    @property
    def about(self) -> str:
        return self.summary or self.title

    @property
    def searched(self) -> str:
        return " ".join((self.name, self.title, self.paper, self.summary, self.group, *self.components)).casefold()


def catalogue() -> list[Listed]:
    """All recipes, by name."""
    groups = {name: paper.family for paper in papers() for name in paper.recipes}
    names = recipe_names()
    known: dict[str, Mapping[str, Any]] = {}
    usual = set(_components(_merged("grpo", names, known)))
    found = []
    for name in names:
        raw = _merged(name, names, known)
        title, paper, summary = (str(raw.get(key, "")) for key in ("title", "paper", "summary"))
        own = dict.fromkeys(each for each in _components(raw) if each not in usual)
        found.append(Listed(name, title, paper, summary, groups.get(name) or family_of(name) or OWN, tuple(own)))
    return found


def _merged(name: str, names: Sequence[str], known: dict[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """As :func:`read_merged`, each file read once."""
    if name not in known:
        raw = read_yaml(recipe_text(name))
        base = raw.pop("extends", None)
        by_name = base is None or base in names
        known[name] = extended(_merged(base, names, known) if base else {}, raw) if by_name else read_merged(name)
    return known[name]


def matching(words: Sequence[str], of: Sequence[Listed], *, group: str | None, slot: str | None) -> list[Listed]:
    """Recipes that have every word in their name, title, paper, line, group or components; those that are called so
    come first.

    Args:
        group: of this group alone; None for all.
        slot: with a component of their own in this slot; None for all.
    """
    wanted = [word.casefold().removeprefix("arxiv:") for word in words]
    kept = [
        each
        for each in of
        if all(word in each.searched for word in wanted)
        and group in (None, each.group)
        and (slot is None or any(component.partition(" ")[0] == slot for component in each.components))
    ]
    return sorted(kept, key=lambda each: [each.name] != wanted)


def differences(recipe: Recipe, base: Recipe) -> dict[str, tuple[Any, Any]]:
    """Key -> its value in ``base`` and in ``recipe``, of keys whose values differ; ``None, VALUE`` of one that ``base``
    has not. Keys of stages are without their number where both have one stage."""
    alone = len(recipe.stages) == len(base.stages) == 1
    before, now = (dict(_leaves("", of.resolved(), alone)) for of in (base, recipe))
    keys = [*now, *(key for key in before if key not in now)]
    return {
        key: (before.get(key), now.get(key))
        for key in keys
        if key.partition(".")[0] not in _ABOUT and before.get(key) != now.get(key)
    }


def _leaves(key: str, value: Any, alone: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}".lstrip("."), below, alone)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            in_stage = key == "stages" and alone
            yield from _leaves("" if in_stage else f"{key}.{number}", item, alone)
    else:
        yield key, value


def _components(raw: Mapping[str, Any]) -> Iterator[str]:
    """``SLOT KIND`` of the components that a recipe's plain values name."""
    stages = raw.get("stages")
    parts = [raw, *(stages if isinstance(stages, list) else [])]
    for part in parts:
        if isinstance(part, Mapping):
            if "kind" in part:
                yield f"stages {part['kind']}"
            for slot, value in part.items():
                for each in value if isinstance(value, list) else [value]:
                    kind = each.get("kind") if isinstance(each, Mapping) else each
                    if slot in SLOTS and slot != "stages" and isinstance(kind, str):
                        yield f"{slot} {kind}"
