"""Components: settings with a ``kind``, found by name, checked before anything heavy is loaded.

A component is one file in a room's package: a frozen pydantic model (its settings) whose ``build`` makes the thing.
Dropping the file into the package is all it takes to be found: a room's modules are imported on the first look-up.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo, field_validator
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

_registry: dict[str, dict[str, type[Component]]] = {}


class RecipeError(ValueError):
    """A recipe or an input that cannot be used. Each line names the key, what was given, what is allowed."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))


class Settings(BaseModel):
    """Keys of a recipe: unknown ones are refused, and so are numbers that are none (``.nan``, ``true``)."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads true as 1: `steps: yes` would be a run of one step.
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            allowed = {annotation, *get_args(annotation)}
            if allowed & {int, float} and bool not in allowed:
                raise PydanticCustomError("truth", "input should be a number, not true or false")
        return value


class Component(Settings):
    """Settings of one method: ``class GroupRelative(Component, room="credit")`` with ``kind: Literal["group"]``."""

    room: ClassVar[str] = ""

    def __init_subclass__(cls, room: str | None = None, **kwargs: Any) -> None:
        # pydantic hands class keywords to both hooks; without this one Python itself refuses ``room``.
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, room: str | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if room is not None:
            cls.room = room
        if "kind" in cls.model_fields:
            kind = cls.model_fields["kind"].default
            taken = _registry.setdefault(cls.room, {}).get(kind)
            if taken is not None and taken.__module__ != cls.__module__:
                raise TypeError(f"{cls.room} kind {kind!r} is {taken.__module__}.{taken.__qualname__} already")
            _registry[cls.room][kind] = cls


def kinds(room: str) -> dict[str, type[Component]]:
    """Every component of a room by kind, sorted. Imports the room's modules the first time."""
    package = importlib.import_module(f"lyceum.{room}")
    for module in pkgutil.iter_modules(package.__path__, f"lyceum.{room}."):
        importlib.import_module(module.name)
    return dict(sorted(_registry.get(room, {}).items()))


def nearest(given: str, allowed: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing when no allowed word is close."""
    close = difflib.get_close_matches(str(given), list(allowed), n=3, cutoff=0.6)
    # Letters that changed places are the likelier slip: 'gpro' is 'grpo', though 'gspo' is as near.
    close.sort(key=lambda word: sorted(word) != sorted(str(given)))
    return f" (did you mean {close[0]!r}?)" if close else ""


class _SlotSchema:
    """Validates ``{"kind": ..., settings}``, a bare kind, or a built component.

    Looked up at validation time and not as a union at class time, so that a room may hold components that hold
    components of the same room (a sum of rewards), and plug-ins may register late.
    """

    def __init__(self, room: str, usual: str | None) -> None:
        self.room, self.usual = room, usual

    def parse(self, value: Any) -> Component:
        if isinstance(value, Component):
            if value.room != self.room:
                raise PydanticCustomError("room", "got a component of '{got}'", {"got": value.room})
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            raise PydanticCustomError(
                "slot", "got {got}; allowed: a kind, or a mapping with a kind", {"got": repr(value)}
            )
        allowed = kinds(self.room)
        kind = value.get("kind", self.usual)
        if kind not in allowed:
            given = "no kind" if kind is None else f"{kind!r}{nearest(str(kind), allowed)}"
            detail = {"given": given, "allowed": ", ".join(allowed)}
            raise PydanticCustomError("kind", "got {given}; allowed: {allowed}", detail)
        try:
            return allowed[kind].model_validate({**value, "kind": kind})
        except ValidationError as error:
            # pydantic does not nest errors raised by validators: carry them, explain() unfolds them with their keys.
            raise PydanticCustomError("inside", "invalid", {"inside": error.errors(), "of": allowed[kind]}) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        dump = core_schema.plain_serializer_function_ser_schema(lambda c: c.model_dump(mode="json"))
        return core_schema.no_info_plain_validator_function(self.parse, serialization=dump)


def slot(room: str, usual: str | None = None) -> Any:
    """``Annotated[Any, slot("credit")]``: a field that takes any component of that room; ``usual`` is the kind of
    settings that name none."""
    return _SlotSchema(room, usual)


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each mistake: ``credit.kind: got 'grop' (did you mean 'group'?); allowed: gae, group, rloo``."""
    lines: list[str] = []
    for detail in error.errors():
        lines += _explain_one(detail, model, ())
    return lines


def _explain_one(detail: ErrorDetails, model: type[BaseModel], above: tuple[Any, ...]) -> list[str]:
    loc, ctx = (*above, *detail["loc"]), detail.get("ctx", {})
    key = ".".join(str(part) for part in loc)
    match detail["type"]:
        case "inside":
            lines: list[str] = []
            for inner in ctx["inside"]:
                lines += _explain_one(inner, ctx["of"], loc)
            return lines
        case "kind":
            return [f"{key}.kind: {detail['msg']}"]
        case "slot" | "room":
            return [f"{key}: {detail['msg']}"]
        case "extra_forbidden":
            fields = list(_fields_at(model, detail["loc"][:-1]))
            where = str(detail["loc"][-1])
            return [f"{key}: unknown key{nearest(where, fields)}; allowed: {', '.join(sorted(fields))}"]
        case "tuple_type":
            return [f"{key}: got {detail['input']!r}; allowed: a list"]
        case "model_type":
            return [f"{key}: got {detail['input']!r}; allowed: {', '.join(sorted(_fields_at(model, detail['loc'])))}"]
        case "missing":
            return [f"{key}: missing; it has no default"]
        case "value_error":
            message = detail["msg"].removeprefix("Value error, ")
            return [f"{key}: {message}" if key else message]
        case "literal_error":
            given = str(detail["input"])
            return [f"{key}: got {given!r}{nearest(given, _words(ctx))}; allowed: {ctx['expected']}"]
        case _:
            return [f"{key}: got {detail['input']!r}; {detail['msg'][0].lower()}{detail['msg'][1:]}"]


def _words(ctx: Mapping[str, Any]) -> list[str]:
    return [word.strip(" '") for word in str(ctx.get("expected", "")).replace(" or ", ", ").split(",")]


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> Iterable[str]:
    """Names that are allowed where an unknown key stood."""
    for part in loc:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = field.annotation if field else None
        for each in get_args(inner) or (inner,):  # also one that may be null
            if isinstance(each, type) and issubclass(each, BaseModel):
                model = each
    return model.model_fields


def require_keys(what: str, *, given: Mapping[str, Any], needed: Iterable[str]) -> None:
    """Raise ValueError where a saved state lacks a key or has one too many: a silent half-resume is a wrong run."""
    missing, extra = set(needed) - set(given), set(given) - set(needed)
    if missing or extra:
        raise ValueError(f"{what}: state lacks {sorted(missing)}, has unknown {sorted(extra)}")
