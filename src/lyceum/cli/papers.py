"""``lyceum papers``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import printing

IN_FULL = 3
"""Papers up to which their titles and differences are printed too."""


def command(
    text: Annotated[list[str] | None, typer.Argument(help="Words of a name, a title or what a paper does.")] = None,
    *,
    state: Annotated[
        str | None,
        typer.Option(help="works, 'mechanism only', part, planned, 'not a method' or 'off the field'; by default all."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="What recipes were made after: code, paper, reviews or abstract; by default all.")
    ] = None,
    shown: Annotated[
        str | None, typer.Option(help="What was seen of them here: mechanism or gain; by default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the papers of the field: what each does, which recipe does it, and what the others wait for.

    For example: lyceum papers tree search --state works --after code
    """
    words = " ".join(text or [])
    with printing(as_json) as out:
        from rich.table import Table
        from rich.text import Text

        from lyceum.analysis.papers import EVIDENCE, SOURCES, STATES, followed_besides, found, papers
        from lyceum.utils.errors import nearest
        from lyceum.utils.terminal import quoted

        selected = {"state": (state, STATES), "after": (after, SOURCES), "shown": (shown, EVIDENCE)}
        for option, (given, allowed) in selected.items():
            check(option, given, allowed)
        listed = papers()
        besides = followed_besides(listed)
        every = [*listed, *besides]
        matches = [
            paper
            for paper in found(words, every)
            if all(given in (None, getattr(paper, option)) for option, (given, _) in selected.items())
        ]
        out.json([paper.model_dump() | {"differs": paper.differs} for paper in matches])
        if not matches:
            names = {paper.name.casefold(): paper.name for paper in every}
            of_state = "".join(
                f" of {option} {given!r}" for option, (given, _) in selected.items() if given is not None
            )
            out.show(
                f"no paper{of_state} contains {quoted(words)}{nearest(words.casefold(), names)}; all: lyceum papers"
            )
            return
        table = Table()
        for head in ("paper", "state", "after, shown", "recipe", "what it does"):
            table.add_column(head)
        for paper in matches:
            cells = (paper.state, f"{paper.after}\n{paper.shown}".strip(), "\n".join(paper.done_by), paper.does)
            table.add_row(Text(paper.name, style="bold"), *(Text(cell) for cell in cells))
        out.show(table)
        for paper in matches if len(matches) <= IN_FULL else ():
            number = f", https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else ""
            out.show(Text(f"{paper.title}{number}", style="bold"))
            if paper.after:
                read = f"{SOURCES[paper.after]}{f' ({paper.code})' if paper.code else ''}"
                where = f" (docs/{paper.table}, benchmarks/results/{paper.results})" if paper.table else ""
                out.show(f"made after: {read}; shown: {paper.shown}{where}")
            if paper.missing:
                out.show(f"{'why' if paper.state == 'off the field' else 'missing'}: {paper.missing}")
            for recipe, differs in paper.differs.items():
                out.show(f"lyceum train {recipe}; not as its paper: {differs}" if differs else f"lyceum train {recipe}")
            for name in paper.commands:
                out.show(
                    f"lyceum {name} --help; not as the paper: {paper.note}" if paper.note else f"lyceum {name} --help"
                )
        if len(matches) > 1:
            on_list = [paper for paper in matches if paper not in besides]
            counted = ", ".join(
                f"{count} {each}" for each in STATES if (count := sum(paper.state == each for paper in on_list))
            )
            more = len(matches) - len(on_list)
            out.show(
                f"{len(on_list)} papers{': ' if counted else ''}{counted}"
                + (f"; and {more} more that recipes follow" if more else "")
            )


def check(option: str, given: str | None, allowed: Iterable[str]) -> None:
    """Raise RecipeError where an option has a value that no paper has."""
    from lyceum.utils.errors import RecipeError, nearest
    from lyceum.utils.terminal import quoted

    if given is not None and given not in (names := [*allowed]):
        raise RecipeError(f"--{option}: got {quoted(given)}{nearest(given, names)}; allowed: {', '.join(names)}")
