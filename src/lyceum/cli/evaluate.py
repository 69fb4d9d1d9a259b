"""``lyceum eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, Model, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import FAILED, NOTHING_LEARNT


@takes("lyceum.api:evaluate", "tasks k n samples SAMPLING reward greedy seed workers output")
def command(
    model: Model,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Further settings: tasks.levels=[1,2] tasks.columns.prompt=question top_k=20"
        ),
    ] = None,
    *,
    output: Path | None,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Measure a model: pass@k, avg@k, maj@k and greedy, each with its 95 % interval, by level.

    For example: lyceum eval runs/demo --k 1,8,64
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.measure import Unwritten
        from lyceum.analysis.tables import accuracy_table, count, few_lines, reward_lines, ungraded_lines

        unwritten: list[str] = []
        try:
            found = api.evaluate(model, overrides=keys or [], output=output, progress=out.progress, **how)
        except Unwritten as error:
            found, unwritten = error.accuracy, [f"{output} could not be written: {error.strerror}"]
        metrics = found.to_json()
        if why := found.why_nothing_graded:
            written = [] if output is None else unwritten or [f"written to {output}"]
            raise Failure(NOTHING_LEARNT, [*why, *written], **metrics)
        if unwritten and as_json:
            raise Failure(FAILED, unwritten, **metrics)
        out.json(metrics)
        if as_json:
            return
        out.show("", accuracy_table(metrics), *few_lines(metrics), *reward_lines(metrics))
        out.show(
            f"{count(metrics['tokens_sampled'])} tokens sampled in {metrics['seconds']:.1f} s, "
            f"{metrics['completion_tokens_mean']:.1f} per completion"
        )
        if metrics["truncated"]:
            limit = metrics["sampling"]["max_completion_tokens"]
            out.show(f"{100 * metrics['truncated']:.1f} % of samples were truncated at {limit} tokens (--max-tokens)")
        out.show(*ungraded_lines(metrics))
        if unwritten:
            raise Failure(FAILED, unwritten)
        if output is not None:
            out.show(f"written to {output}")
