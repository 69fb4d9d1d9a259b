"""``lyceum convert``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import printing


def command(
    file: Annotated[
        str,
        typer.Argument(
            help="A script of TRL (.py), a configuration of TRL or verl (.yaml, .json), or a command of TRL, verl or "
            "OpenRLHF (.sh)."
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Settings to replace, by that library's names, such as num_processes=8."
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write the recipe to, .yaml; by default it is printed. A script's reward functions are "
            "written to a file beside it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert a configuration of TRL, verl or OpenRLHF to a recipe; each key without a counterpart is named in it.

    For example: lyceum convert grpo_script.py num_processes=8 --out mine.yaml

    Nothing of the file is run: a script is read by its syntax tree, a shell script by its words.
    """
    with printing(as_json) as output:
        from lyceum.analysis.conversion.convert import convert
        from lyceum.recipe.files import SUFFIXES
        from lyceum.utils.atomic_files import atomic_write
        from lyceum.utils.errors import RecipeError

        if out is not None and out.suffix not in SUFFIXES:  # before it is taken apart: '' has no name
            raise RecipeError(f"--out: got {str(out)!r}; allowed: a .yaml file")
        rewards = None if out is None else out.with_name(f"{out.stem}_rewards.py")
        for written in (out, rewards):
            if written is not None and written.exists():
                raise RecipeError(f"--out: {str(written)!r} exists; allowed: a new file")
        found = convert(file, keys or (), rewards="" if rewards is None else str(rewards))
        if out is None or rewards is None:
            output.show(found.text.rstrip("\n"))
        else:
            atomic_write(out, found.text)
            if found.rewards:
                atomic_write(rewards, found.rewards)
            trusted = " trust_code=true" if found.runs_code else ""
            output.show(
                f"{out}  {found.counted}",
                *([f"{rewards}  its reward functions, and what they use of {file}"] if found.rewards else []),
                f"next  lyceum train {shlex.quote(str(out))} --dry-run{trusted}",
            )
        output.json(
            {
                "library": found.library,
                "converted": {key: list(ours) for key, ours in found.done.items()},
                "named": found.named,
                "recipe": dict(found.recipe),
            }
        )
