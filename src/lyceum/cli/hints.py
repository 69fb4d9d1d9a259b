"""``lyceum hints``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.cli.outcome import FAILED, Failure
from lyceum.cli.output import printing


def command(tasks: str, keys: Sequence[str], *, output: Path, tiers: str, as_json: bool, **how: Any) -> None:
    with printing(as_json) as out:
        from lyceum.hints.write import write_hints

        names = [name.strip() for name in tiers.split(",") if name.strip()]
        found = write_hints(tasks, keys, output=output, tiers=names, progress=out.progress, **how)
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
