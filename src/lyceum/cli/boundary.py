"""``lyceum boundary``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.cli.outcome import STOPPED, Failure
from lyceum.cli.output import printing


def command(
    words: Sequence[str],
    sampling: dict[str, Any],
    *,
    output: Path | None,
    unsolved: Path | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Compare models by their samples of the same tasks.

    Args:
        words: models, and ``key=value``.
        how: further arguments of :func:`lyceum.api.boundary`.
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.comparison.boundary_show import lines, tables

        models = [word for word in words if "=" not in word]
        keys = [word for word in words if "=" in word]
        try:
            found = api.boundary(
                models, keys, output=output, unsolved=unsolved, progress=out.progress, **how, **sampling
            )
        except KeyboardInterrupt:
            kept = "nothing was kept; with --output models that are done are not sampled again"
            if output is not None:
                kept = f"samples of models that were done are kept in {output}; the same command goes on from there"
            raise Failure(STOPPED, [kept]) from None
        out.json(found.to_json())
        for table in tables(found):
            out.show("", table)
        out.show("", *lines(found))
        if output is not None:
            out.show("", f"metrics  {output / 'boundary.json'}", f"page     {output / 'boundary.html'}")
        if unsolved is not None:
            out.show(f"{len(found.unsolved)} of {found.tasks} tasks, unsolved by {found.labels[0]}: {unsolved}")
