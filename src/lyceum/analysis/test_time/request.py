"""A search request: strategies, sizes, a value model, and overrides of each, as a user types them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from lyceum.analysis.test_time.strategy import NAMED, Strategy
from lyceum.core.component import Component, Settings, explain, kinds, slot
from lyceum.core.settings import Composition, RolloutSettings, ValueSettings
from lyceum.recipe.schema import Overrides, read_override
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

ALL = "all"

Given = dict[str, Any]


class SearchRequest(Settings):
    """Strategies, sizes, value model and budgets of a search."""

    strategy: tuple[Strategy, ...]
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
    ) -> tuple[SearchRequest, Overrides]:
        """
        Returns:
            The request, and the overrides that do not belong to it.
        Raises:
            RecipeError: an unknown name, or an invalid value.
        """
        named = listed(strategies)
        own, rest = own_settings(overrides, named)
        raw = {
            "strategy": with_settings(named, own),
            "sizes": tuple(sizes),
            "value": value_settings(value, own.get("value", {})),
            "tokens": tuple(tokens),
        }
        try:
            request = cls.model_validate(raw)
        except ValidationError as error:
            raise RecipeError(explain(error, cls)) from None
        if request.value is None and ALL in strategies:
            able = tuple(strategy for strategy in request.strategy if not strategy.reads_values)
            request = request.model_copy(update={"strategy": able})
        return request, rest

    def check(self, stage: Composition) -> list[str]:
        """Lines that say which parts cannot work together."""
        reading = [strategy.label for strategy in self.strategy if strategy.reads_values]
        if self.value is None:
            lacks = (
                f"value: got none, but {', '.join(reading)} {'reads' if len(reading) == 1 else 'read'} values; "
                f"allowed: {', '.join(kinds('value'))}, or strategies that need none"
            )
            return [lacks] if reading else []
        lines = self.value.conflicts(stage)
        if self.value.untrained:
            lines.append("value.path: got none, a model that has learnt nothing; allowed: a trained one's folder")
        return lines


def own_settings(overrides: Overrides, named: Mapping[str, Any]) -> tuple[dict[str, Given], list[Any]]:
    """Overrides of strategies, of ``step`` (every strategy with steps) and of ``value``, nested; and the others."""
    own: dict[str, Given] = {}
    rest: list[Any] = []
    for override in overrides:
        key, value = override if isinstance(override, tuple) else read_override(override)
        first, *path = key.split(".")
        if first not in {*NAMED, *named, "step", "value"} or not path:
            rest.append(override)
            continue
        if first not in ("step", "value") and path[0] not in ("choose", "rollout"):
            path = ["rollout", *path]
        into = own.setdefault(first, {})
        for part in path[:-1]:
            if not isinstance(into.get(part), dict):
                into[part] = {}
            into = into[part]
        into[path[-1]] = value
    return own, rest


def listed(strategies: Sequence[Any]) -> dict[str, Given]:
    """Every strategy once, as settings by name; ``all`` expanded.

    Raises:
        RecipeError: no strategy, an unknown name, or one name twice with different settings.
    """
    found: dict[str, Given] = {}
    for given in [one for each in strategies for one in (NAMED if each == ALL else [each])]:
        if isinstance(given, str) and given not in NAMED:
            near = nearest(given, [*NAMED, ALL])
            raise RecipeError(
                f"strategy: got {quoted(given)}{near}; allowed: {ALL}, {', '.join(NAMED)}, or a rollout and a choice "
                "such as {rollout: {kind: mcts, width: 4}, choose: best}"
            )
        settings: Given = {"name": given, **NAMED[given]} if isinstance(given, str) else plain_settings(given)
        if found.setdefault(settings["name"], settings) != settings:
            raise RecipeError(f"strategy: got {quoted(settings['name'])} twice; allowed: each name once")
    if not found:
        raise RecipeError(f"strategy: got none; allowed: {ALL}, or any of {', '.join(NAMED)}")
    return found


def plain_settings(given: Any) -> Given:
    """A strategy as a mapping that overrides can be merged into, not validated otherwise."""
    settings: Given = dict(given) if isinstance(given, Mapping | Strategy) else {}
    if not settings.keys() >= {"rollout", "choose"}:
        raise RecipeError(f"strategy: got {quoted(given)}; allowed: a name, or a mapping with rollout and choose")
    rollout = settings["rollout"]
    if isinstance(rollout, RolloutSettings):
        # Without defaults: a strategy's own values replace those that the user did not set.
        rollout = rollout.model_dump(exclude_unset=True) | {"kind": rollout.kind}
    elif isinstance(rollout, str):
        rollout = {"kind": rollout}
    kind = rollout.get("kind") if isinstance(rollout, Mapping) else None
    name = settings.get("name") or f"{kind}-{settings['choose']}"
    return settings | {"name": str(name), "rollout": rollout}


def with_settings(strategies: Mapping[str, Given], own: Mapping[str, Given]) -> list[Given]:
    """The strategies with their overrides.

    Raises:
        RecipeError: settings for a strategy that was not requested.
    """
    known, names = kinds("rollout"), ", ".join(strategies)
    for key in own:
        if key not in ("step", "value") and key not in strategies:
            raise RecipeError(f"{key}: got settings, but the strategies are {names}; allowed: one of them")
    found: list[Given] = []
    stepwise = False
    for name, settings in strategies.items():
        rollout = settings["rollout"]
        kind = known.get(str(rollout.get("kind"))) if isinstance(rollout, Mapping) else None
        if "step" in own and kind is not None and "step" in kind.model_fields:
            settings, stepwise = merged(settings, {"rollout": {"step": own["step"]}}), True
        found.append(merged(settings, own.get(name, {})))
    if "step" in own and not stepwise:
        raise RecipeError(f"step: got settings, but none of {names} goes step by step")
    return found


def merged(settings: Mapping[str, Any], over: Mapping[str, Any]) -> Given:
    """The settings with ``over`` merged in, key by key where both are nested."""
    found = dict(settings)
    for key, value in over.items():
        below = found.get(key)
        found[key] = merged(below if isinstance(below, Mapping) else {}, value) if isinstance(value, Mapping) else value
    return found


def value_settings(value: Any, own: Mapping[str, Any]) -> Any:
    """A kind of the slot ``value``, or the folder of a trained one (kind ``model``), with its settings.

    Raises:
        RecipeError: neither, or settings without a value model.
    """
    known = kinds("value")
    if isinstance(value, Path) or (isinstance(value, str) and value not in known and value != "none"):
        on_hub = str(value).count("/") == 1 and not str(value).startswith(".")
        if not local_path(value).is_dir() and not on_hub:
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
