"""``lyceum doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from lyceum.cli.outcome import FAILED, Failure
from lyceum.cli.output import printing

if TYPE_CHECKING:  # it imports what is examined, and --help does not need it
    from lyceum.diagnosis.result import CheckResult

STYLES = {"ok": "green", "fails": "bold red", "note": "dim", "skipped": "yellow"}


def command(model: str, keys: Sequence[str], *, as_json: bool, **how: Any) -> None:
    """Examine a model and show each check's result.

    Args:
        how: further arguments of :func:`lyceum.api.doctor`.
    """
    with printing(as_json) as out:
        from lyceum import api

        report = api.doctor(model, keys, progress=out.progress, **how)
        document = report.to_json()
        checked = [result for result in report.results if result.status in ("ok", "fails")]
        out.json(document)
        out.show("", table(report.results))
        out.show(*(result.values["traceback"] for result in report.failures if "traceback" in result.values))
        if failed := report.failures:
            names = ", ".join(result.check for result in failed)
            raise Failure(FAILED, [f"{len(failed)} of {len(checked)} checks failed: {names}"], **document)
        out.show("", f"all {len(checked)} checks passed in {report.seconds:.0f} s")


def table(results: Sequence[CheckResult]) -> Table:
    """A line for each result; where it fails, what is allowed and the cure below it."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True, min_width=max(map(len, STYLES)))
    lines.add_column(overflow="fold")
    for result in results:
        lines.add_row(Text(result.status, STYLES[result.status]), Text(f"{result.check}: {result.found}"))
        if result.status == "fails":
            lines.add_row("", Text(f"allowed: {result.allowed}\ncure: {result.cure}"))
    return lines
