"""``lyceum grade``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lyceum.cli.options import takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import NOTHING_LEARNT

MOST_REASONS = 8
"""Maximum number of reasons in the table."""


@takes("lyceum.api:grade", "reward model output")
def command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file (.jsonl, .parquet, .csv) with columns prompt, completion, answer and what the reward reads, "
            "or a run's folder."
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings: reward.extract=boxed reward.workers=8 columns.completion=response model.dtype=bfloat16 "
            "(see: lyceum components reward).",
        ),
    ] = None,
    *,
    output: Path | None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per row, and nothing else.")] = False,
    **how: Any,
) -> None:
    """Grade completions that are in a file, with any reward.

    For example: lyceum grade answers.jsonl --reward math --json, or of a run again: lyceum grade runs/demo

    Each line has the row's number, score (null where it could not be graded, with the reason), correct and parts; of a
    run also step, task and the recorded outcome. Rows one after another with the same prompt, answer and column group
    are graded together, for rewards that compare the completions of a group. Exit code 0 whatever the rows hold,
    but 3 where none of them could be graded.
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.tables import graded_table

        each = out.line if as_json else None
        found = api.grade(file, overrides=keys or [], output=output, each=each, progress=out.progress, **how)
        out.show(graded_table(found))
        for reason, count in found.reasons.most_common(MOST_REASONS):
            out.show(f"{count} ungraded: {reason}")
        if len(found.reasons) > MOST_REASONS:
            out.show(f"and {len(found.reasons) - MOST_REASONS} further reasons")
        if found.judged < found.graded and found.to_judge:
            out.show(f"rewards that are not all 0 or 1 do not say which answers are correct; {found.to_judge}")
        if output is not None:
            out.show(f"written to {output}")
        if found.rows and not found.graded:
            if as_json:  # each line has its reason
                raise typer.Exit(NOTHING_LEARNT)
            why = next(iter(found.reasons))
            raise Failure(NOTHING_LEARNT, [f"none of the {found.rows} rows could be graded: {why}"])
