"""Describes components and settings from their pydantic models: type, bounds, default, meaning, paper and file."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import lyceum
from lyceum.analysis.papers import cited
from lyceum.core import own_components
from lyceum.core.component import Component, find, kinds
from lyceum.core.paper_folders import SLOTS, folder_of
from lyceum.utils.documents import write_yaml
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import plain, to_json

BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "at least", "max_length": "at most"}


def asked_for(slot: str | None, kind: str | None) -> dict[str, Any]:
    """Slot -> its kinds, of the slot that was named or of all."""
    if slot is not None and slot not in SLOTS:
        raise RecipeError(f"slot: got {slot!r}{nearest(slot, SLOTS)}; allowed: {', '.join(SLOTS)}")
    if kind is not None and slot is not None and own_components.is_code(kind):
        with own_components.trusting({kind}):
            own = find(slot, kind)
        assert own is not None
        return {slot: {kind: own}}
    found = {name: kinds(name) for name in ([slot] if slot is not None else SLOTS)}
    if kind is not None and slot is not None and kind not in found[slot]:
        raise RecipeError(f"kind: got {kind!r}{nearest(kind, found[slot])}; allowed: {', '.join(found[slot])}")
    return found


def having(text: str, slot: str, components: dict[str, Any]) -> dict[str, Any]:
    """The components of a slot that have every word of a text."""
    words = text.casefold().split()

    def searched(kind: str, component: dict[str, Any]) -> str:
        return " ".join([slot, kind, component["about"], *where(component)]).casefold()

    return {kind: of for kind, of in components.items() if all(word in searched(kind, of) for word in words)}


def described(model: type[BaseModel]) -> dict[str, Any]:
    """What a component is, its equations, its settings and its place."""
    return {"about": about(model), "equations": equations(model), "settings": settings(model)} | place_of(model)


def where(component: dict[str, Any]) -> list[str]:
    """The lines that name a component's paper and its file, each where there is one."""
    cited = [component["title"], *([f"arXiv:{component['arxiv']}"] if component["arxiv"] else [])]
    return [line for line in (", ".join(cited) if component["paper"] else "", component["file"] or "") if line]


def place_of(model: type[BaseModel]) -> dict[str, str | None]:
    """The paper whose folder a component is in, its short title and its number on arXiv, and the component's file,
    lyceum's below the package; None where there is none."""
    file, package = own_components.file_of(model), Path(lyceum.__file__).parent
    folder = folder_of(file)
    shown = file if file is None or not Path(file).is_relative_to(package) else str(Path(file).relative_to(package))
    title, arxiv = (None, None) if folder is None else cited(folder)
    return {"paper": None if folder is None else folder.name, "title": title, "arxiv": arxiv, "file": shown}


def about(model: type[BaseModel]) -> str:
    """The docstring, one line per paragraph."""
    paragraphs = (model.__doc__ or "").strip().split("\n\n")
    return "\n".join(" ".join(paragraph.split()).replace("``", "") for paragraph in paragraphs)


def equations(model: type[BaseModel]) -> list[dict[str, str]]:
    """The equations in the docstrings of a component's file: {about, equation, source} of each class and function that
    has one, in their order. A text that is not there is empty."""
    module = sys.modules[model.__module__]
    own = [each for each in vars(module).values() if inspect.isclass(each) or inspect.isfunction(each)]
    texts = [inspect.cleandoc(each.__doc__ or "") for each in own if each.__module__ == module.__name__]
    found = ((text, _equation(text)) for text in texts)
    return [
        {
            "about": " ".join(text.split("\n\n")[0].split()).replace("``", ""),
            "equation": equation,
            "source": _section(text, "Source"),
        }
        for text, equation in found
        if equation
    ]


_SECTION = re.compile(r"(?m)^[A-Z]\w+:$")


def _equation(docstring: str) -> str:
    """The indented paragraphs before the sections of a docstring."""
    paragraphs = re.split(r"\n\n+", _SECTION.split(docstring)[0].rstrip())[1:]
    return "\n".join(inspect.cleandoc(f"\n{each}") for each in paragraphs if each.startswith("    "))


def _section(docstring: str, name: str) -> str:
    found = re.search(rf"(?m)^{name}:\n((?:    .*(?:\n|$))+)", docstring)
    return "" if found is None else " ".join(found[1].split()).replace("``", "")


def meaning(model: type[BaseModel], name: str) -> str:
    """The text below a setting, without markup."""
    owner = next(each for each in model.__mro__ if name in inspect.get_annotations(each))
    text = _texts(owner.__module__).get(owner.__name__, {}).get(name, "")
    return " ".join(text.split()).replace("``", "")


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Class of a module -> field -> the text below it. Read here, for who asks: pydantic would read the file of each
    class that is imported."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # made without a file
        return {}
    return {each.name: dict(_below(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _below(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(owner.body):
        match pair:
            case (ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text)))):
                yield field, text


def settings(model: type[BaseModel], above: str = "") -> list[dict[str, Any]]:
    """Each setting as {key, type, bounds, default, about}, those of nested settings after their own key."""
    found: list[dict[str, Any]] = []
    for name, field in model.model_fields.items():
        if name == "kind":
            continue
        key = f"{above}{name}"
        nested = model_inside(field.annotation)
        default = None if nested and slot_of(field) is None else default_of(field)
        found.append(
            {
                "key": key,
                "type": type_of(field),
                "bounds": bounds_of(field),
                "required": field.is_required(),
                "default": default,
                "about": meaning(model, name),
            }
        )
        if nested is not None:
            found += settings(nested, f"{key}.")
    return found


def model_inside(annotation: Any) -> type[BaseModel] | None:
    """The settings class of a field, also if it may be null."""
    inner = [each for each in typing.get_args(annotation) if each is not type(None)] if _is_union(annotation) else []
    for candidate in inner or [annotation]:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def slot_of(field: FieldInfo) -> str | None:
    """The slot that a field takes components of; None for a plain setting."""
    for place in (*field.metadata, *_metadata(field.annotation)):
        slot = getattr(place, "slot", None)
        if isinstance(slot, str):
            return slot
    return None


def type_of(field: FieldInfo) -> str:
    slot = slot_of(field)
    if slot is not None:
        return f"{'list of ' if typing.get_origin(field.annotation) is tuple else ''}{slot} component"
    return words(field.annotation)


def words(annotation: Any) -> str:
    """``std | none | batch``, ``number``, ``list of int``: a type in words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin is typing.Annotated:
        return words(inner[0])
    if _is_union(annotation):
        return " or ".join("null" if each is type(None) else words(each) for each in inner)
    if origin in (tuple, list):
        return f"list of {words(inner[0])}" if inner else "list"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "settings"
    plain = {int: "int", float: "number", str: "text", bool: "true | false", dict: "mapping", type(None): "null"}
    return plain.get(annotation, getattr(annotation, "__name__", "any").lower())


def bounds_of(field: FieldInfo) -> str:
    places = [*field.metadata]
    if not _is_list(field.annotation):  # bounds of a list's items are not bounds of the list
        places += [place for outer in _metadata(field.annotation) for place in getattr(outer, "metadata", [outer])]
    bounds = [(sign, getattr(place, name, None)) for place in places for name, sign in BOUNDS.items()]
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if isinstance(bound, int | float))


def default_of(field: FieldInfo) -> Any:
    """The default as plain values; also None if required, see ``required``."""
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else plain_settings(value)


def plain_settings(value: Any) -> Any:
    """A setting's value as JSON and YAML take it, nested components and settings as mappings."""
    return plain(value, other=lambda settings: settings.model_dump(mode="json"))


def shown(value: Any) -> str:
    """A plain value as one line of YAML."""
    return value if isinstance(value, str) and value else to_json(value, other=str)


def _metadata(annotation: Any) -> list[Any]:
    """Metadata of every Annotated inside: ``tuple[Annotated[RewardSettings, slot("reward")], ...]``."""
    found = list(getattr(annotation, "__metadata__", ()))
    for inner in typing.get_args(annotation):
        found += _metadata(inner)
    return found


def _is_list(annotation: Any) -> bool:
    return any(typing.get_origin(each) in (tuple, list) for each in (annotation, *typing.get_args(annotation)))


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def commented(value: Any, width: int, indent: str = "") -> list[str]:
    """Settings as YAML, each key with its meaning as a comment of so many columns, and for a slot the kinds of it."""
    lines: list[str] = []
    if "kind" in type(value).model_fields:
        lines.append(f"{indent}kind: {value.kind}")
    for name, field in type(value).model_fields.items():
        if name == "kind":
            continue
        inner = getattr(value, name)
        about = meaning(type(value), name)
        bounds = bounds_of(field)
        slot = slot_of(field)
        others = f" One of: {', '.join(kinds(slot))}." if slot is not None and kinds(slot) else ""
        comment = f"{about}{others}{f' ({bounds})' if bounds else ''}"
        lines += [f"{indent}# {line}" for line in wrap(comment, max(40, width - len(indent)))]
        if hasattr(type(inner), "model_fields"):
            lines += [f"{indent}{name}:", *commented(inner, width, indent + "  ")]
        elif isinstance(inner, tuple) and inner and isinstance(inner[0], Component):
            lines.append(f"{indent}{name}:")
            for item in inner:
                first, *rest = commented(item, width, indent + "    ")
                lines += [f"{indent}  - {first.strip()}", *rest]
        else:
            lines += _plain_yaml(name, inner, indent)
    return lines


def _plain_yaml(name: str, value: Any, indent: str) -> list[str]:
    value = plain_settings(value)
    style = None if isinstance(value, Mapping) and value else True
    text = write_yaml({name: value}, default_flow_style=style, width=10_000).strip()
    if style and text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return [f"{indent}{line}" for line in text.split("\n")]
