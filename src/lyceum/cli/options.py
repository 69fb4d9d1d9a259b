"""Options of commands, from the functions that they call: an option has the type, the default and the words of the
argument of its name.

The functions' files are read and not imported: that would take longer than the answer to a mistyped command.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lyceum.utils.errors import RecipeError

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document on standard output, and progress as lines of JSON on standard error."
    ),
]
Model = Annotated[str, typer.Argument(help="base, a model's folder, a hub name, a .gguf file, or a run's folder.")]


def _use(folders: list[Path] | None) -> list[Path] | None:
    from lyceum.core.paper_folders import use

    use(folders or [])
    return folders


Papers = Annotated[
    list[Path] | None,
    typer.Option(
        "--papers",
        metavar="DIR",
        help="A paper's folder of your own, or one with several: recipes are known by name, components by kind, and "
        "code is trusted. May be given several times.",
        callback=_use,
    ),
]

SAMPLING: dict[str, tuple[Any, str]] = {
    "temperature": (float | None, "Sampling temperature."),
    "top_p": (float | None, "Sampling top-p."),
    "max_tokens": (int | None, "Maximum tokens per completion."),
}
"""Options that are keys of a recipe: without one a run's own are used, or the defaults."""

_TYPES: dict[str, Any] = {
    **{each.__name__: each for each in (int, float, bool, str)},
    "Resume": bool,
    "int | None": int | None,
    "Path | str": Path,
    "Path | str | None": Path | None,
    "Sequence[int]": str | None,
    "Sequence[float]": str | None,
    "Sequence[str]": str | None,
}
"""What an annotation is on the command line; others are texts, which the recipe reads."""


class Argument(NamedTuple):
    """An argument of a function.

    Attributes:
        annotation: as it is written.
        default: None also where it has none.
        about: what the docstring says of it on one line, without marks and what holds in Python alone.
    """

    annotation: str
    default: Any
    required: bool
    about: str

    def option(self, name: str) -> inspect.Parameter:
        """As a parameter that typer reads."""
        kind, default = _TYPES.get(self.annotation, str | None), self.default
        if self.annotation.startswith("Sequence"):
            default = ",".join(map(str, default)) or None
        # A switch that is off by default needs no --no-SWITCH, and of a single letter typer would make -n.
        words = (f"--{name.replace('_', '-')}",) if default is False or len(name) == 1 else ()
        annotation = Annotated[kind, typer.Option(*words, help=self.about)]
        return _parameter(name, annotation, inspect.Parameter.empty if self.required else default)

    def read(self, name: str, value: Any) -> Any:
        """A value of the command line, as the function takes it."""
        if not self.annotation.startswith("Sequence"):
            return value
        if self.annotation == "Sequence[str]":
            return [word.strip() for word in (value or "").split(",") if word.strip()]
        return [] if value is None else numbers(value, f"--{name}")


@cache
def arguments(function: str) -> dict[str, Argument]:
    """The arguments of a function, ``lyceum.MODULE:FUNCTION``."""
    module, _, name = function.partition(":")
    place = files("lyceum").joinpath(*module.split(".")[1:-1])
    last = module.rpartition(".")[2]
    file = place / last / "__init__.py" if (place / last).is_dir() else place / f"{last}.py"
    found = _functions(file)[name]
    args, about = found.args, _described(inspect.cleandoc(ast.get_docstring(found) or ""))
    positional, missing = args.args, len(args.args) - len(args.defaults)
    defaults = [*[None] * missing, *args.defaults, *args.kw_defaults]
    return {
        arg.arg: Argument(
            ast.unparse(arg.annotation) if arg.annotation is not None else "Any",
            None if default is None or isinstance(default, ast.Lambda) else ast.literal_eval(default),
            default is None,
            _about(about.get(arg.arg, ""), module, arg.arg),
        )
        for arg, default in zip([*positional, *args.kwonlyargs], defaults, strict=True)
    }


@cache
def _functions(file: Any) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}


def _described(docstring: str) -> dict[str, str]:
    """Argument -> what the section ``Args`` says of it."""
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", docstring, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w[\w, ]*): ((?:.*)(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _about(text: str, module: str, name: str) -> str:
    """A docstring's words as help: what another function says, where they are its own; no marks."""
    if same := re.fullmatch(r"as for :func:`(\w+)`\.", text):
        return arguments(f"{module}:{same[1]}")[name].about
    text = text.partition(" In Python ")[0].replace("``", "")
    text = re.sub(r":func:`(\w+)`", lambda named: f"lyceum {COMMANDS.get(named[1], named[1])}", text)
    return text[:1].upper() + text[1:]


COMMANDS = {"evaluate": "eval"}
"""What the command of a function is called, where it is not the function's name."""


def takes(function: str, names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with options of a function, beside its own parameters.

    Args:
        function: ``lyceum.MODULE:FUNCTION``.
        names: its arguments that are options, in the order of ``--help``; the command is passed them as the function
            takes them. Keywords of the command's own and ``SAMPLING``, of which it is passed what was given, may stand
            among them; its other keywords come last.
    """

    def made(command: Callable[..., None]) -> Callable[..., None]:
        declared, own = arguments(function), inspect.signature(command, eval_str=True).parameters
        listed = [name for each in names.split() for name in (SAMPLING if each == "SAMPLING" else (each,))]
        first = [name for name, each in own.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        last = [name for name, each in own.items() if each.kind is each.KEYWORD_ONLY and name not in (*first, *listed)]
        parameters: list[inspect.Parameter] = []
        for name in (*first, *listed, *last):
            if name in declared and name in listed:
                parameters.append(declared[name].option(name))
            elif name in own:
                parameters.append(_parameter(name, own[name].annotation, own[name].default))
            else:
                kind, about = SAMPLING[name]
                parameters.append(_parameter(name, Annotated[kind, typer.Option(help=about)], None))

        def call(**given: Any) -> None:
            passed: dict[str, Any] = {}
            for name, value in given.items():
                if name in listed and name in declared:
                    passed[name] = declared[name].read(name, value)
                elif name not in SAMPLING or name in own:
                    passed[name] = value
                elif value is not None:
                    passed["max_completion_tokens" if name == "max_tokens" else name] = value
            command(**passed)

        return _as(command, call, parameters)

    return made


def with_papers(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``--papers``, by which this process knows the user's papers before it runs."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [each for each in own if each.name != "as_json"]
    parameters += [_parameter("papers", Papers, None), *(each for each in own if each.name == "as_json")]

    def call(*, papers: Any = None, **given: Any) -> None:
        command(**given)

    parameters = [_parameter(each.name, each.annotation, each.default) for each in parameters]
    return _as(command, call, parameters)


def _as(command: Any, call: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """A function with a command's words and these parameters, as typer reads them."""
    call.__doc__ = command.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def numbers(text: str, option: str) -> list[int]:
    """``1,8,64`` as numbers."""
    try:
        return [int(part) for part in text.replace(" ", "").split(",")]
    except ValueError:
        allowed = "numbers with commas between them, such as 1,8,64"
        raise RecipeError(f"{option}: got {text!r}; allowed: {allowed}") from None
