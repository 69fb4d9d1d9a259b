"""Components: settings with a ``kind``, found by name, checked before anything heavy is loaded.

A component is one file in a slot's package, or ``SLOT_KIND.py`` in a paper's folder (``core/paper_folders.py``): a
frozen pydantic model (its settings) whose ``build`` makes the thing. Dropping the file there is all it takes to be
found: under its file's name, or where its kind is another, when all of its slot's modules are imported. One of the
user's own may also be named by its file and class (``core/own_components.py``).
"""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from lyceum.core import own_components, paper_folders
from lyceum.core.needs import Gift, Gives, Need, declared, unmet
from lyceum.utils.documents import is_unicode
from lyceum.utils.errors import RecipeError, nearest, renamed
from lyceum.utils.terminal import quoted

if TYPE_CHECKING:
    from lyceum.core.paper_folders import PaperFolder
    from lyceum.core.settings import Composition
    from lyceum.core.types import TaskSource

LARGEST = 1_000_000
"""Largest absolute value of an integer setting, unless the setting has a larger bound of its own."""

LARGEST_REAL, SMALLEST_REAL = 1e9, 1e-38
"""Largest and smallest absolute value of other numbers except 0; a 32-bit float holds nothing smaller."""

MOST_ITEMS, MOST_COMPONENTS = 1000, 100
"""Maximum length of a list of values, and of a list of components."""

MOST_SAMPLES = 1_000
"""Maximum samples of a task whose votes are counted: C(1000, 500) is 2.7e299; larger binomials overflow float64."""

MOST_CHARACTERS = 100_000
"""Maximum length of a text, in characters."""

MOST_LINES = 10
"""Maximum lines of an error message; more are counted."""

MOST_COUNTED = 100
"""Maximum number of further mistakes that are counted."""

SWITCHED_OFF = ("checkpoint_every", "every", "top_k")
"""Settings that 0 switches off, and -1 in vLLM and verl."""

Seed = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
"""A random seed."""

Tokens = Annotated[int, Field(ge=1, le=10**15)]
"""A token budget."""

BatchTokens = Annotated[int, Field(ge=1, le=10**9)]
"""Tokens in one forward pass; the largest value means no limit in practice."""


def _can_be_split(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    try:
        words_of(command)
    except ValueError as error:
        raise ValueError(f"got {quoted(command)}: {error}; allowed: a command line") from None
    return command


def words_of(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """A command line's words, as a POSIX shell splits them."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


CommandLine = Annotated[str | tuple[str, ...], AfterValidator(_can_be_split)]
"""A program with its arguments: a line, or its words."""


def _is_path(value: str) -> str:
    if len(value.encode()) > 4000 or any(len(part.encode()) > 255 for part in value.split("/")):
        raise ValueError(
            f"got {quoted(value)}; allowed: a path of at most 4000 bytes, and at most 255 between two slashes"
        )
    return value


PathText = Annotated[str, AfterValidator(_is_path)]
"""A file, a folder, or a name that may be one; short enough for any file system."""

KIND = re.compile(r"[a-z][a-z0-9-]*")
"""The form of the kinds that are built in."""

_registry: dict[str, dict[str, type[Component]]] = {}


class Settings(BaseModel):
    """Keys of a recipe: unknown ones are refused, and so are values that no setting can use.

    These are values that are not numbers (``.nan``, ``true``), numbers, lists and texts beyond the limits above, and
    texts with a NUL or characters that UTF-8 cannot encode. ``le`` on a field raises its limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    requires: ClassVar[tuple[Gift | Need, ...]] = ()
    """What it needs of the rest of a stage or a search, beside what its bases need (``core/needs.py``)."""
    refuses: ClassVar[tuple[Gift | Need, ...]] = ()
    """What it does not go with, beside what its bases do not."""
    gives: ClassVar[tuple[Gift | Gives, ...]] = ()
    """What it gives the rest, beside what its bases give."""

    def nested(self) -> Iterator[tuple[str, Settings]]:
        """The settings in its own fields, alone or in tuples, each with the field's name."""
        for name, value in self:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Settings):
                    yield name, each

    @property
    def needed(self) -> frozenset[Gift]:
        """What it needs as it is set; nested settings are included."""
        own = frozenset(need.of for need in declared(type(self), "requires") if need.when(self))
        return own.union(*(each.needed for _, each in self.nested()))

    @property
    def offers(self) -> frozenset[Gift]:
        """What it gives as it is set."""
        return frozenset(each.of for each in declared(type(self), "gives") if each.when(self))

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads true as 1: `steps: yes` would be a run of one step.
        alone_or_listed = value if isinstance(value, list | tuple) else (value,)
        if info.field_name is not None and any(isinstance(each, bool) for each in alone_or_listed):
            allowed = set(_types(cls.model_fields[info.field_name].annotation))
            if allowed & {int, float} and bool not in allowed:
                raise PydanticCustomError("truth", "allowed: a number, not true or false")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _within_limits(cls, value: Any, info: ValidationInfo) -> Any:
        beyond = None if info.field_name is None else _beyond(value, _largest(cls, info.field_name))
        if beyond is not None:
            raise PydanticCustomError("limit", "{beyond}", {"beyond": beyond})
        return value


def _types(annotation: Any) -> Iterator[Any]:
    """Every type anywhere inside an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


@cache
def _largest(settings: type[Settings], name: str) -> int:
    """The largest integer that a field allows: the highest bound in its annotation, or else LARGEST."""
    field = settings.model_fields[name]
    return int(max([LARGEST, *_bounds(field.metadata), *_bounds(field.annotation)]))


def _bounds(annotation: Any) -> Iterator[float]:
    """Every upper bound anywhere inside an annotation or its metadata."""
    for place in annotation if isinstance(annotation, list) else getattr(annotation, "__metadata__", ()):
        yield from (bound for name in ("le", "lt") if (bound := getattr(place, name, None)) is not None)
        yield from _bounds(getattr(place, "metadata", []))
    for inner in get_args(annotation):
        yield from _bounds(inner)


def _beyond(value: Any, largest: int, *, in_mapping: bool = False) -> str | None:
    """What is allowed instead of a value that exceeds a limit; None for a value within the limits."""
    if isinstance(value, str):
        if "\0" in value or not is_unicode(value):
            return "allowed: text of Unicode characters, without NUL"
        return f"allowed: at most {MOST_CHARACTERS} characters" if len(value) > MOST_CHARACTERS else None
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return f"allowed: numbers up to {largest}" if abs(value) > largest else None
    if isinstance(value, float):
        fits = in_mapping or value == 0 or SMALLEST_REAL <= abs(value) <= LARGEST_REAL
        return None if fits else f"allowed: 0, or an absolute value of {SMALLEST_REAL:g} to {LARGEST_REAL:g}"
    if isinstance(value, Mapping):  # a dataset's or a template's own values, whose units are unknown
        inner, largest, in_mapping = [*value, *value.values()], (1 << 63) - 1, True
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
        most = MOST_COMPONENTS if inner and isinstance(inner[0], Settings) else MOST_ITEMS
        if len(inner) > most:
            return f"allowed: at most {most} items"
    else:
        return None
    return next((beyond for each in inner if (beyond := _beyond(each, largest, in_mapping=in_mapping))), None)


class Component(Settings):
    """Settings of one method: ``class GroupRelative(CreditSettings)`` with ``kind: Literal["group"]``.

    ``lyceum.core.settings`` has what the components of each slot derive from.
    """

    slot: ClassVar[str] = ""
    formerly: ClassVar[tuple[str, ...]] = ()
    """Kinds under which recipes of earlier versions name it: the error message gives the new kind."""
    besides: ClassVar[tuple[str, ...]] = ()
    """Of a slot: what may stand in it besides a kind, for messages."""

    if TYPE_CHECKING:
        # Components of a slot have a kind, as a Literal, which is not an override of a mutable ``str``.
        kind: Any = ""

    def __init_subclass__(cls, slot: str | None = None, **kwargs: Any) -> None:
        # pydantic passes class keywords to both hooks; without this one Python itself refuses ``slot``.
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, slot: str | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if slot is not None:
            cls.slot = slot
        if "kind" in cls.model_fields:
            kind = cls.model_fields["kind"].default
            taken = _registry.get(cls.slot, {}).get(kind)
            if taken is None and cls.slot and isinstance(kind, str) and own_components.is_own(cls):
                taken = _shipped(
                    cls.slot, kind
                )  # lyceum's may not be imported yet, whose place one's own must not take
            if taken is not None and not _is_same(taken, cls):
                raise RecipeError(
                    f"{cls.slot} kind {kind!r} is {_dotted(taken)} already; allowed: another kind for {_dotted(cls)}"
                )
            _registry.setdefault(cls.slot, {})[kind] = cls
        if own_components.is_own(cls):
            own_components.remember(cls)

    def components(self) -> Iterator[Component]:
        """The components in its own fields, alone or in tuples."""
        return (each for _, each in self.nested() if isinstance(each, Component))

    def checked(self, stage: Composition) -> Iterator[tuple[str, Settings]]:
        """What is nested in it whose conflicts are looked for where its own are."""
        return self.nested()

    def code(self) -> tuple[str, ...]:
        """The Python functions that building it would run, as the recipe names them."""
        return ()

    def conflicts(self, stage: Composition, outer: Component | None = None) -> list[str]:
        """Why it does not go with the rest of a stage or a search, one line each; nested components are included.

        Args:
            outer: the component of the stage that it is nested in.
        Raises:
            RecipeError: its ``check`` returned something else than a list of texts.
        """
        outer = outer or self
        above = None if self.slot == "stages" else outer
        lines: list[str] = []
        within = list(self.checked(stage))
        for name, each in within:
            if isinstance(each, Component):
                of = each.conflicts(stage, above)
                # A curriculum in another one: its keys are below this one's.
                inside = each.slot and each.slot == self.slot
                lines += [renamed(line, each.slot, f"{each.slot}.{name}") for line in of] if inside else of
            else:
                within += each.nested()
                lines += unmet(each, self, outer, stage)
        lines += unmet(self, self, outer, stage)
        own: Any = self.check(stage)
        if not isinstance(own, list | tuple) or not all(isinstance(line, str) for line in own):
            raise RecipeError(
                f"{self.slot} {self.kind!r}: check returned {own!r:.200}; allowed: a list of lines, [] if none"
            )
        return [*lines, *own]

    def check(self, stage: Composition) -> list[str]:
        """Conflicts with the rest of a stage or search that ``requires`` and ``refuses`` do not say, one line each."""
        return []

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError where the tasks lack fields that are read; nested components are checked too."""
        for part in self.components():
            part.check_tasks(source)


def _is_same(taken: type[Component], defined: type[Component]) -> bool:
    """Whether a class is an earlier one again: a cell that was run twice, a file imported under two names."""
    file = own_components.file_of(defined)
    return taken.__module__ == defined.__module__ or (file is not None and own_components.file_of(taken) == file)


def kinds(slot: str) -> dict[str, type[Component]]:
    """Every component of a slot by kind, sorted: its package's and papers'. Imports their modules the first time."""
    _import_package(slot)
    for folder, kind in paper_folders.component_files(slot):
        if kind not in _registry.get(slot, {}):
            _of_paper(folder, slot, kind)
    return dict(sorted(_registry.get(slot, {}).items()))


def _import_package(slot: str) -> None:
    package = importlib.import_module(f"lyceum.{paper_folders.SLOTS[slot]}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def find(slot: str, kind: str) -> type[Component] | None:
    """The component of a kind; None where there is none, or only one that is not trusted.

    Imports the module that the kind is named after, and all of the slot's where it is another: all take half a second
    longer than the few that a recipe names.
    """
    if kind in (known := _registry.get(slot, {})):
        return known[kind]
    if own_components.is_code(kind) and own_components.is_trusted(kind):
        return _own(slot, kind)
    if not KIND.fullmatch(kind):
        return None
    return _named_after(slot, kind, paper_folders.folders_of_papers) or kinds(slot).get(kind)


def _shipped(slot: str, kind: str) -> type[Component] | None:
    """Lyceum's own component of a kind."""
    if not KIND.fullmatch(kind):
        return None
    if (found := _named_after(slot, kind, paper_folders.shipped)) is None:
        _import_package(slot)
        found = _registry.get(slot, {}).get(kind)
    return found


def _named_after(slot: str, kind: str, folders: Callable[[], Iterable[PaperFolder]]) -> type[Component] | None:
    """The component in the file that its kind is named after."""
    module = f"lyceum.{paper_folders.SLOTS[slot]}.{kind.replace('-', '_')}"
    if importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
    elif (folder := next((each for each in folders() if (slot, kind) in each.components), None)) is not None:
        return _of_paper(folder, slot, kind)
    return _registry.get(slot, {}).get(kind)


def _of_paper(folder: PaperFolder, slot: str, kind: str) -> type[Component]:
    """The component in a paper's folder.

    Raises:
        RecipeError: it cannot be imported, or the file has another component than its name says.
    """
    file = folder.components[slot, kind]
    module = folder.load(file).__name__
    of_file = [(of, each) for of, known in _registry.items() for each in known if known[each].__module__ == module]
    if of_file != [(slot, kind)]:
        found = ", ".join(f"{of} kind {named!r}" for of, named in of_file) or "no component"
        raise RecipeError(f"papers: {file} has {found}; allowed: by its name one component, {slot} kind {kind!r}")
    return _registry[slot][kind]


def _own(slot: str, kind: str) -> type[Component]:
    """The class that a kind names by its file.

    Raises:
        RecipeError: it cannot be loaded, or is no component of the slot.
    """
    found = own_components.load(kind)
    if isinstance(found, type) and issubclass(found, Component) and found.slot == slot:
        return found
    what = f"a component of {found.slot!r}" if isinstance(found, type) and issubclass(found, Component) else None
    base = next(of.__name__ for of in Component.__subclasses__() if of.slot == slot)
    what = what or ("a class" if isinstance(found, type) else f"a {type(found).__name__}")
    raise RecipeError(
        f"kind: got {quoted(kind)}, {what}; allowed: a class that derives from lyceum.core.settings.{base} or from a "
        f"component of {slot!r}, and whose build returns what computes; lyceum components {slot} lists them, the page "
        "'A method of your own' has one to begin from"
    )


def own_within(settings: object) -> list[str]:
    """The names of all components of the user's own anywhere inside settings."""
    if isinstance(settings, BaseModel):
        of = type(settings)
        named = [own_components.name_of(of)] if isinstance(settings, Component) and own_components.is_own(of) else []
        return named + [name for _, value in settings for name in own_within(value)]
    inner = settings if isinstance(settings, list | tuple) else ()
    return [name for value in inner for name in own_within(value)]


class SlotSchema:
    """Validates ``{"kind": ..., settings}``, a bare kind, or a built component.

    Looked up at validation time, not as a union at class time, so that components of a slot may contain components of
    the same slot (a sum of rewards), and plug-ins may register late.
    """

    def __init__(self, slot: str, usual: str | None) -> None:
        self.slot, self.usual = slot, usual

    def parse(self, value: Any, base: type[Component]) -> Component:
        if isinstance(value, Component):
            if value.slot != self.slot:
                raise PydanticCustomError(
                    "slot",
                    "got {got}, a component of '{slot}'; allowed: one that derives from {base}",
                    {"got": type(value).__name__, "slot": value.slot, "base": _dotted(base)},
                )
            _require_base(type(value), base)
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            is_class = isinstance(value, type) and issubclass(value, Component)
            raise PydanticCustomError(
                "slot",
                "got {got}; allowed: {allowed}",
                {
                    "got": f"the class {value.__name__}" if is_class else quoted(value),
                    "allowed": f"an instance, {value.__name__}(...)"
                    if is_class
                    else f"a kind, or a mapping with a kind, or from Python a component of {self.slot!r}",
                },
            )
        kind = value.get("kind", self.usual)
        try:
            found = self.find(kind)
        except RecipeError as error:
            raise PydanticCustomError("code", "not loaded", {"lines": tuple(error.lines)}) from None
        if found is None:
            allowed = kinds(self.slot)
            # In a tuple, since pydantic cannot print a text that is not Unicode.
            raise PydanticCustomError(
                "kind",
                "no such kind",
                {
                    "kind": (kind,),
                    "allowed": (*allowed, own_components.CLASS, *base.besides),
                    "now": _kind_now(kind, allowed),
                },
            )
        _require_base(found, base)
        try:
            return found.model_validate({**value, "kind": found.model_fields["kind"].default})
        except ValidationError as error:
            # pydantic does not nest errors raised by validators: carry them, explain() unfolds them with their keys.
            details = error.errors(include_url=False)
            raise PydanticCustomError("inside", "invalid", {"inside": details, "of": found}) from None

    def find(self, kind: object) -> type[Component] | None:
        if not isinstance(kind, str):
            return None
        return _own(self.slot, kind) if own_components.is_code(kind) else find(self.slot, kind)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        dump = core_schema.plain_serializer_function_ser_schema(_dumped)
        base = source if isinstance(source, type) and issubclass(source, Component) else Component
        return core_schema.no_info_plain_validator_function(lambda value: self.parse(value, base), serialization=dump)


def _dumped(component: Component) -> dict[str, Any]:
    """Its settings as plain values, from which another process can make it again."""
    values, of = component.model_dump(mode="json"), type(component)
    return {**values, "kind": own_components.name_of(of)} if own_components.is_own(of) else values


def _require_base(found: type[Component], base: type[Component]) -> None:
    """Refuse a class that is no whole component of its slot."""
    if not issubclass(found, base):
        wanted = f"components that derive from {_dotted(base)}"
    elif "kind" not in found.model_fields or not isinstance(found.model_fields["kind"].default, str):
        wanted = f'a class with a kind, a line such as kind: Literal["my-{base.slot}"] = "my-{base.slot}"'
    elif inspect.isabstract(found):
        wanted = (
            f"a class that also has {', '.join(sorted(found.__abstractmethods__))}(...), as {_dotted(base)} declares"
        )
    else:
        return
    raise PydanticCustomError("slot", "got {got}; allowed: {wanted}", {"got": _dotted(found), "wanted": wanted})


def _dotted(of: type[Any]) -> str:
    return f"{of.__module__}.{of.__qualname__}"


def _kind_now(kind: object, allowed: Mapping[str, type[Component]]) -> str | None:
    return next((now for now, component in allowed.items() if kind in component.formerly), None)


def slot(name: str, usual: str | None = None) -> Any:
    """``Annotated[CreditSettings, slot("credit")]``: a field that takes any component of that slot; ``usual`` is the
    default kind, for settings without one."""
    return SlotSchema(name, usual)


def of_kind(kind: str) -> Any:
    """The default of a slot: the component of this kind, with its default settings."""
    return kind  # which the slot's validation reads


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each mistake: ``credit.kind: got 'grop' (did you mean 'group'?); allowed: gae, group, rloo``."""
    return first_of(mistakes(error, model))


def mistakes(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """The lines of :func:`explain`, all of them, each made when it is asked for: a hint takes a millisecond."""
    return _explain_all(error.errors(include_url=False), model, ())


def first_of(lines: Iterable[str]) -> list[str]:
    """The first lines of a message, and how many more there are. A list of allowed keys that several lines end with is
    in the last of them alone."""
    lines = iter(lines)
    first = list(islice(lines, MOST_LINES))
    lists = [line.partition(": unknown key; ")[2] for line in first]
    first = [
        line.removesuffix(f"; {ending}") if ending and ending in lists[number + 1 :] else line
        for number, (line, ending) in enumerate(zip(first, lists, strict=True))
    ]
    more = sum(1 for _ in islice(lines, MOST_COUNTED))
    return [*first, f"and {more}{' or more' if more == MOST_COUNTED else ''} more"] if more else first


def _explain_all(details: Iterable[ErrorDetails], model: type[BaseModel], above: tuple[Any, ...]) -> Iterator[str]:
    for detail in details:
        ctx = detail.get("ctx", {})
        if detail["type"] == "too_short" and any(_is_within(other["loc"], detail["loc"]) for other in details):
            continue  # an item that is wrong is not counted
        if detail["type"] == "inside":
            yield from _explain_all(ctx["inside"], ctx["of"], (*above, *detail["loc"]))
        elif detail["type"] == "code":
            key = ".".join(str(part) for part in (*above, *detail["loc"]))
            first, *rest = ctx["lines"]
            yield from (f"{key}.{first}", *rest)
        else:
            yield _explain_one(detail, model, ".".join(str(part) for part in (*above, *detail["loc"])))


def _is_within(inner: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _explain_one(detail: ErrorDetails, model: type[BaseModel], key: str) -> str:
    ctx, given = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "kind":
            (kind,), allowed = ctx["kind"], ctx["allowed"]
            if ctx["now"] is not None:
                return f"{key}.kind: got {quoted(kind)}, which is called {ctx['now']!r} now"
            got = "no kind" if kind is None else quoted(kind)
            suggestion = nearest(kind, allowed) if isinstance(kind, str) else ""
            return f"{key}.kind: got {got}{suggestion}; allowed: {', '.join(allowed)}"
        case "slot":
            return f"{key}: {detail['msg']}"
        case "extra_forbidden":
            fields = list(_fields_at(model, detail["loc"][:-1]))
            where = str(detail["loc"][-1])
            deeper = [f"{name}.{where}" for name in fields if where in _fields_at(model, (*detail["loc"][:-1], name))]
            near = f" (did you mean {deeper[0]!r}?)" if deeper and where not in fields else nearest(where, fields)
            return f"{key}: unknown key{near or '; allowed: ' + ', '.join(sorted(fields))}"
        case "tuple_type":
            return f"{key}: got {quoted(given)}; allowed: {_list_instead(given, _field_at(model, detail['loc']))}"
        case "model_type":
            return f"{key}: got {quoted(given)}; allowed: {', '.join(sorted(_fields_at(model, detail['loc'])))}"
        case "missing":
            return f"{key}: missing; it has no default: give {key}=VALUE"
        case "value_error":
            message = detail["msg"].removeprefix("Value error, ")
            return f"{key}: {message}" if key else message
        case "literal_error":
            suggestion = nearest(given, _words(ctx)) if isinstance(given, str) else ""
            return f"{key}: got {quoted(given)}{suggestion}; allowed: {ctx['expected']}"
        case "int_parsing_size":
            return f"{key}: got {quoted(given)}; too large for a whole number"
        case type_ if type_ in _ALLOWED:
            elsewhere = "; 0 is what -1 is elsewhere" if given == -1 and detail["loc"][-1] in SWITCHED_OFF else ""
            allowed = _ALLOWED[type_].format(*map(_number, ctx.values()))
            return f"{key}: got {quoted(given)}; allowed: {allowed}{elsewhere}"
        case _:
            return f"{key}: got {quoted(given)}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


_ALLOWED = {
    "greater_than_equal": "{} or more",
    "greater_than": "more than {}",
    "less_than_equal": "{} or less",
    "less_than": "less than {}",
    "too_short": "at least {1} of them",
    "too_long": "at most {1} of them",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "finite_number": "a finite number",
    "string_type": "a text",
    "dict_type": "a mapping",
}
"""pydantic's type of a mistake -> what is allowed; {} is the bound."""


def _number(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _list_instead(given: Any, field: FieldInfo | None) -> str:
    """What to write where a list is needed: one of the given value, if such a list is valid, else the default."""
    default = () if field is None else field.get_default(call_default_factory=True, validated_data={})
    short = (isinstance(given, str) and len(given) < 50) or (isinstance(given, int) and abs(given) < 10**9)
    if short and field is not None and _is_valid([given], field):
        return f"a list, such as [{given}]"
    plain = isinstance(default, tuple) and all(isinstance(each, str | int | float) for each in default)
    return f"a list, such as [{', '.join(map(str, default))}]" if plain and default else "a list"


def _is_valid(value: Any, field: FieldInfo) -> bool:
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    try:
        TypeAdapter[Any](annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _words(ctx: Mapping[str, Any]) -> list[str]:
    return [word.strip(" '") for word in str(ctx.get("expected", "")).replace(" or ", ", ").split(",")]


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> Iterable[str]:
    """Names that are allowed in the place of an unknown key."""
    return _model_at(model, loc).model_fields


def _field_at(model: type[BaseModel], loc: tuple[Any, ...]) -> FieldInfo | None:
    """The field that a mistake is in; None for an item of a list."""
    return _model_at(model, loc[:-1]).model_fields.get(loc[-1]) if loc and isinstance(loc[-1], str) else None


def _model_at(model: type[BaseModel], loc: tuple[Any, ...]) -> type[BaseModel]:
    for part in loc:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = field.annotation if field else None
        for each in get_args(inner) or (inner,):  # also one that may be null
            if isinstance(each, type) and issubclass(each, BaseModel):
                model = each
    return model


class Stateless:
    """What components without state say: they observe nothing, and a checkpoint holds nothing of them."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys(type(self).__name__, given=state, needed=())


def require_keys(what: str, *, given: Mapping[str, Any], needed: Iterable[str]) -> None:
    """Raise ValueError where a saved state lacks a key or has one too many: a silent half-resume is a wrong run."""
    missing, extra = set(needed) - set(given), set(given) - set(needed)
    if missing or extra:
        raise ValueError(f"{what}: state lacks {sorted(missing)}, has unknown {sorted(extra)}")
