"""``lyceum hints``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import FAILED


@takes(
    "lyceum.analysis.hints.write:write_hints",
    "output model endpoint tiers items n concurrency timeout_seconds retries temperature max_tokens",
)
def command(
    tasks: Annotated[
        str,
        typer.Argument(help="A file (.jsonl, .parquet, .csv), a hub dataset, or a kind (chain), which needs --n."),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Such as tasks.columns.prompt=question model.dtype=bfloat16"),
    ] = None,
    *,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Write ladders of hints for a dataset, which guidance uses where a group fails.

    For example: lyceum hints data.jsonl --endpoint http://localhost:8000/v1 --model qwen --output hints.jsonl,
    then: lyceum train scaf-grpo tasks=hints.jsonl tasks.columns.hints=hints

    The model sees each problem with its answer and, where the task has one, its solution or demonstration. Hints that
    reveal the answer are dropped and requested again. Each row is written when it is done: the same command resumes
    where it was stopped, and retries what failed. Exit code 1 if no task got hints.
    """
    with printing(as_json) as out:
        from lyceum.analysis.hints.write import write_hints

        found = write_hints(tasks, keys or [], progress=out.progress, **how)
        lines = [
            f"{found.written} of {found.tasks} tasks got {found.hints} hints in {found.seconds:.1f} s"
            + (f"; {found.already_there} already had theirs" if found.already_there else ""),
        ]
        if found.leaks_dropped:
            lines.append(f"{found.leaks_dropped} hints revealed the answer and were dropped")
        if found.asked_again:
            lines.append(f"{found.asked_again} retries")
        if found.failed:
            lines.append(f"tasks without hints: {found.failed}")
            lines += [f"  {times} x {reason}" for reason, times in found.failures.most_common()]
        if found.failed and not found.written:
            raise Failure(FAILED, lines, **found.to_json())
        out.json(found.to_json())
        out.show(*lines)
        if found.failed:
            out.show("the same command retries these")
        out.show(f"next    lyceum train scaf-grpo tasks={found.output} tasks.columns.hints=hints")
