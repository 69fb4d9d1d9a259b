"""How a command ends: its exit code, and errors as text or JSON."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from lyceum.cli.streams import hold, plain_messages
from lyceum.utils.errors import FAILED, STOPPED, UNUSABLE, RecipeError, RunError, bounded
from lyceum.utils.numbers import to_json
from lyceum.utils.progress import Console
from lyceum.utils.terminal import printable
from lyceum.utils.threads import wait_passively


class Failure(Exception):
    """A command failed for a reason that is not a bug.

    Args:
        code: exit code.
        lines: the message.
        more: further entries of the JSON output.
    """

    def __init__(self, code: int, lines: Sequence[str], **more: Any) -> None:
        super().__init__("\n".join(lines))
        self.code, self.lines, self.more = code, list(lines), more


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code.

    Args:
        argv: its arguments; None takes the process's, which is expected to exit afterwards.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    if argv is None:
        wait_passively()
    outlet = hold() if argv is None else None
    with plain_messages():
        code = _run(arguments, as_json=as_json)
    if outlet is not None and outlet.failed is not None:
        lost = f"standard output could not be written ({outlet.failed.strerror}); the output above is incomplete"
        say(Failure(FAILED, [lost]), as_json=False)
        code = code or FAILED
    if as_json and argv is None:
        # What libraries print when Python exits (trackio) goes to standard error.
        _flush()
        os.dup2(2, 1)
    return code


def _run(arguments: list[str], *, as_json: bool) -> int:
    from lyceum.cli.app import app

    try:
        # Not standalone: typer would print usage errors itself, and not as JSON.
        code = app(args=arguments or ["--help"], prog_name="lyceum", standalone_mode=False)
        if code == STOPPED:  # typer's code for Ctrl-C
            raise KeyboardInterrupt
        _flush()
        return code if isinstance(code, int) else 0
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        failure = Failure(STOPPED, ["stopped"])
    except (Exception, SystemExit) as error:  # a reward's file may call sys.exit(), which must be reported
        found = failure_of(error)
        if found is None:
            print(printable(traceback.format_exc()), end="", file=sys.stderr)
            found = Failure(FAILED, [f"{type(error).__name__}: {error}"])
            if not as_json:
                return found.code
        failure = Failure(found.code, [*found.lines, *getattr(error, "__notes__", ())], **found.more)
    say(failure, as_json=as_json)
    return failure.code


def _flush() -> None:
    if sys.stdout is not None:  # None if the parent process closed it
        sys.stdout.flush()


def failure_of(error: BaseException) -> Failure | None:
    """A known exception as a message for the user; None for a bug."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, RecipeError):
        return Failure(UNUSABLE, error.lines)
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        helps = [f"try: {context.command_path} --help"] if context is not None else []
        option = getattr(error, "option_name", None)  # of an option that does not exist
        meant = [] if option is None else _instead_of(option, context)
        return Failure(UNUSABLE, [bounded(error.format_message()) + _recipe_in(error), *meant, *helps])
    if isinstance(error, RunError):
        return Failure(error.exit_code, error.lines)
    if isinstance(error, OSError):
        from lyceum.utils.atomic_files import FULL

        what = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        advice = "; free some space" if error.errno in FULL else ""
        # No file can have such a name: the input is invalid.
        code = UNUSABLE if error.errno == errno.ENAMETOOLONG else FAILED
        return Failure(code, [f"{what}{advice}"])
    return None


def _recipe_in(error: typer.TyperException) -> str:
    """What to type where a recipe stands in the place of a command."""
    from lyceum.recipe.files import recipe_names

    meant = re.match(r"No such command '([\w-]+)'", error.format_message())
    return f" It is a recipe: lyceum train {meant[1]}" if meant and meant[1] in recipe_names() else ""


def _instead_of(option: str, context: Any) -> list[str]:
    """A line that says what to type in the place of an option that a command does not have; none if nobody knows."""
    from lyceum.analysis.keys import KEYS, told_elsewhere
    from lyceum.recipe.other_names import answered, known_elsewhere

    if context is None:
        return []
    key, command = option.lstrip("-"), context.command.name
    if command not in KEYS:
        told = known_elsewhere(key) or answered(key, None)
    elif key.partition(".")[0] in KEYS[command]:
        told = None
    else:
        options = {each.name: each.opts[0] for each in context.command.params}
        if told := told_elsewhere(command, key, options | {"max_completion_tokens": options.get("max_tokens", "")}):
            return [told]
    if told:
        return [f"settings are given as key=value: {told}"]
    if not _takes_keys(context):
        return []
    unknown = _unknown_key(command, key)
    if unknown is None:
        return [f"settings are given as key=value, without dashes: {key}=VALUE"]
    commands = context.parent.command.commands if context.parent is not None else {}
    having = [name for name, command in commands.items() if any(option in each.opts for each in command.params)]
    return [f"{option} is an option of lyceum {', '.join(having)}" if having else unknown]


def _unknown_key(command: str, key: str) -> str | None:
    """What a command says of a key that it does not have; None where it has it, or nothing is known."""
    from lyceum.analysis.keys import KEYS, refuse_unknown
    from lyceum.recipe.schema import apply_overrides

    try:
        if command in ("train", "compare"):
            apply_overrides({"stages": [{"kind": "online"}]}, [(key, None)])
        elif command in KEYS:
            refuse_unknown(command, [key])
    except RecipeError as error:
        return error.lines[0].partition("; allowed: ")[0]
    return None


def _takes_keys(context: Any) -> bool:
    return any(parameter.name in ("keys", "words") for parameter in context.command.params)


def say(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        print(to_json({"error": failure.lines, **failure.more}, indent=2, other=str))
        return
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    head = Text("stopped: " if failure.code == STOPPED else "error: ", style="bold red")
    for number, line in enumerate(failure.lines):
        console.print((head if number == 0 else Text("       ")) + Text(line))
