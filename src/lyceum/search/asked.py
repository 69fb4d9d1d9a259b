"""What a search is asked for: strategies, sizes, a value model, and overrides of each, as one may type them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from lyceum.component import Component, RecipeError, Settings, explain, kinds, nearest, slot
from lyceum.recipe import Overrides, read_override
from lyceum.rooms import Composition, ValueSettings
from lyceum.strategy.base import Strategy

ALL = "all"

Given = dict[str, Any]


class Asked(Settings):
    """Which strategies, and how large."""

    strategy: tuple[Annotated[Strategy, slot("strategy")], ...]
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    value: Annotated[ValueSettings, slot("value")] | None
    tokens: tuple[Annotated[float, Field(gt=0)], ...] = ()

    @field_validator("sizes", "tokens")
    @classmethod
    def _rising(cls, numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(set(numbers)))

    @classmethod
    def of(
        cls, strategies: Sequence[Any], sizes: Sequence[int], value: Any, tokens: Sequence[float], overrides: Overrides
    ) -> tuple[Asked, Overrides]:
        """
        Returns:
            What is asked for, and the overrides that are of something else.
        Raises:
            RecipeError: it names what there is not, or values that cannot be.
        """
        own, rest = own_settings(overrides)
        raw = {
            "strategy": with_settings(listed(strategies), own),
            "sizes": tuple(sizes),
            "value": value_settings(value, own.get("value", {})),
            "tokens": tuple(tokens),
        }
        try:
            asked = cls.model_validate(raw)
        except ValidationError as error:
            raise RecipeError(explain(error, cls)) from None
        if asked.value is None and ALL in strategies:
            able = tuple(strategy for strategy in asked.strategy if not strategy.reads_values)
            asked = asked.model_copy(update={"strategy": able})
        return asked, rest

    def check(self, stage: Composition) -> list[str]:
        """What of it cannot work together, a line each."""
        reading = [strategy.kind for strategy in self.strategy if strategy.reads_values]
        if self.value is None:
            lacks = (
                f"value: got none, but {', '.join(reading)} {'reads' if len(reading) == 1 else 'read'} values; "
                f"allowed: {', '.join(kinds('value'))}, or strategies that need none"
            )
            return [lacks] if reading else []
        lines = self.value.check(stage)
        if self.value.untrained:
            lines.append("value.path: got none, a model that has learnt nothing; allowed: a trained one's folder")
        return lines


def own_settings(overrides: Overrides) -> tuple[dict[str, Given], list[str | tuple[str, Any]]]:
    """Overrides of strategies, of ``step`` (all that have steps) and of ``value``, nested; and the others."""
    own: dict[str, Given] = {}
    rest: list[str | tuple[str, Any]] = []
    for override in overrides:
        key, value = override if isinstance(override, tuple) else read_override(override)
        first, *path = key.split(".")
        if first not in {*kinds("strategy"), "step", "value"} or not path:
            rest.append(override)
            continue
        into = own.setdefault(first, {})
        for part in path[:-1]:
            into = into.setdefault(part, {})
        into[path[-1]] = value
    return own, rest


def listed(strategies: Sequence[Any]) -> list[Given]:
    """Every strategy once, as settings; ``all`` written out.

    Raises:
        RecipeError: none, one that there is not, or one twice with settings.
    """
    known = kinds("strategy")
    found: dict[str, Given] = {}
    for given in [one for each in strategies for one in (known if each == ALL else [each])]:
        if isinstance(given, str) and given not in known:
            near = nearest(given, [*known, ALL])
            raise RecipeError(f"strategy: got {given!r}{near}; allowed: {ALL}, {', '.join(known)}")
        if isinstance(given, Component):
            given = given.model_dump()
        settings: Given = dict(given) if isinstance(given, Mapping) else {"kind": given}
        kind = str(settings.get("kind"))
        if kind in found and len(settings) > 1:
            raise RecipeError(f"strategy: got {kind!r} twice; allowed: each kind once")
        found.setdefault(kind, settings)
    if not found:
        raise RecipeError(f"strategy: got none; allowed: {ALL}, or any of {', '.join(known)}")
    return list(found.values())


def with_settings(strategies: Sequence[Given], own: Mapping[str, Given]) -> list[Given]:
    """The strategies with their overrides.

    Raises:
        RecipeError: settings for one that is not there.
    """
    known, there = kinds("strategy"), [str(settings.get("kind")) for settings in strategies]
    stepwise = [kind for kind in there if kind in known and "step" in known[kind].model_fields]
    for key in own:
        if key in known and key not in there:
            raise RecipeError(f"{key}: got settings, but the strategies are {', '.join(there)}; allowed: one of them")
    if "step" in own and not stepwise:
        raise RecipeError(f"step: got settings, but none of {', '.join(there)} goes step by step")
    found: list[Given] = []
    for kind, settings in zip(there, strategies, strict=True):
        step = {"step": own["step"]} if "step" in own and kind in stepwise else {}
        found.append(merged(merged(settings, step), own.get(kind, {})))
    return found


def merged(settings: Mapping[str, Any], over: Mapping[str, Any]) -> Given:
    """The settings with others over them, key by key where both are nested."""
    found = dict(settings)
    for key, value in over.items():
        below = found.get(key)
        found[key] = merged(below or {}, value) if isinstance(value, Mapping) else value
    return found


def value_settings(value: Any, own: Mapping[str, Any]) -> Any:
    """A kind of the room ``value``, or the folder of a trained one (kind ``model``), with settings of its own.

    Raises:
        RecipeError: neither, or settings for no value model.
    """
    known = kinds("value")
    if isinstance(value, Path) or (isinstance(value, str) and value not in known and value != "none"):
        on_hub = str(value).count("/") == 1 and not str(value).startswith(".")
        if not Path(value).expanduser().is_dir() and not on_hub:
            near = nearest(str(value), known)
            raise RecipeError(
                f"value: got {str(value)!r}{near}; allowed: none, {', '.join(known)}, or a model's folder"
            )
        value = {"kind": "model", "path": str(value)}
    if value is None or value == "none":
        if own:
            raise RecipeError(f"value: got none with settings {', '.join(own)}; allowed: {', '.join(known)}")
        return None
    if isinstance(value, Component):
        value = value.model_dump()
    return merged({"kind": value} if isinstance(value, str) else value, own)
