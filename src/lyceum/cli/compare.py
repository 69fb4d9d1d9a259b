"""``lyceum compare``."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.core import paper_folders
from lyceum.utils.errors import NOTHING_LEARNT, STOPPED


@takes("lyceum.api:compare", "seeds tokens jobs name output")
def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE... [KEY=VALUE]... [RECIPE:KEY=VALUE]...",
            help="Recipes, grpo@wide for grpo under the label wide; keys for all, or for one of them.",
        ),
    ],
    *,
    seeds: int,
    tokens: int | None,
    jobs: int,
    name: str | None,
    output: str,
    as_json: Json = False,
) -> None:
    """Compare recipes on the same tasks, seeds and budget. The same command resumes where it was stopped.

    For example: lyceum compare grpo grpo@wide wide:objective.clip_high=0.28 --seeds 3 --tokens 200000
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.comparison.run import check_jobs, plan, split_own
        from lyceum.analysis.comparison.show import cost_table, levels_table, table
        from lyceum.utils.errors import Interrupted

        recipes, shared, own = split_own(words)
        planned = plan(recipes, shared, own, seeds=seeds, tokens=tokens, name=name, output=output)
        check_jobs(planned, jobs)
        out.show(f"{len(planned.recipes)} runs in {planned.folder}", "")
        if len(planned.labels) == 1:
            (label,) = planned.labels
            out.show(
                f"note: {label} alone, with nothing to compare it with; with another: lyceum compare {label} OTHER", ""
            )
        options = ["--seeds", str(seeds), *(["--tokens", str(tokens)] if tokens is not None else [])]
        options += ["--jobs", str(jobs)] if jobs > 1 else []
        options += [*(["--name", name] if name is not None else []), "--output", output, *paper_folders.options()]
        again = shlex.join(["lyceum", "compare", *words, *options, *(["--json"] if as_json else [])])
        try:
            found = api.run_plan(planned, progress=out.progress, began=out.show, jobs=jobs)
        except (Interrupted, KeyboardInterrupt):
            lines = ["finished runs are kept; to continue:", again]
            raise Failure(STOPPED, lines, path=str(planned.folder), resume=again) from None
        document = {"path": str(planned.folder), **found.to_json()}
        out.json(document)
        if any(metrics.by_level for metrics in found.recipes):
            out.show("", levels_table(found))
        out.show("", cost_table(found), "", table(found), *(f"note: {note}" for note in found.notes), "")
        out.show(f"metrics  {planned.folder / 'comparison.json'}", f"plot     {planned.folder / 'comparison.png'}")
        if found.learnt_nothing:
            raise Failure(NOTHING_LEARNT, ["no run learnt anything, so there is nothing to compare"], **document)
