"""``lyceum papers``."""

from __future__ import annotations

from dataclasses import asdict

from lyceum.cli.output import printing

IN_FULL = 3
"""Papers up to which their titles and differences are printed too."""


def command(text: str, state: str | None, *, as_json: bool) -> None:
    with printing(as_json) as out:
        from rich.table import Table
        from rich.text import Text

        from lyceum.recipe.papers import STATES, followed_besides, found, papers
        from lyceum.utils.errors import RecipeError, nearest
        from lyceum.utils.terminal import quoted

        if state is not None and state not in STATES:
            raise RecipeError(f"--state: got {quoted(state)}{nearest(state, STATES)}; allowed: {', '.join(STATES)}")
        listed = papers()
        besides = followed_besides(listed)
        every = [*listed, *besides]
        matches = [paper for paper in found(text, every) if state in (None, paper.state)]
        out.json([asdict(paper) | {"differs": paper.differs} for paper in matches])
        if not matches:
            names = {paper.name.casefold(): paper.name for paper in every}
            of_state = "" if state is None else f" of state {state!r}"
            out.show(f"no paper{of_state} contains {quoted(text)}{nearest(text.casefold(), names)}; all: lyceum papers")
            return
        table = Table()
        for head in ("paper", "state", "recipe", "what it does"):
            table.add_column(head)
        for paper in matches:
            cells = (paper.state, "\n".join(paper.done_by), paper.does)
            table.add_row(Text(paper.name, style="bold"), *(Text(cell) for cell in cells))
        out.show(table)
        for paper in matches if len(matches) <= IN_FULL else ():
            number = f", https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else ""
            out.show(Text(f"{paper.title}{number}", style="bold"))
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
