"""``lyceum search``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.cli.evaluate import numbers
from lyceum.cli.outcome import NOTHING_LEARNT, STOPPED, Failure
from lyceum.cli.output import printing


def command(
    strategies: Sequence[str], sizes: str, tokens: str | None, *, output: Path | None, as_json: bool, **given: Any
) -> None:
    """Search and show the results.

    Args:
        strategies: names with commas between them, or one strategy as a YAML mapping each.
        given: further arguments of :func:`lyceum.api.search`.
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.test_time.show import equal_table, levels_table, table
        from lyceum.utils.errors import Interrupted

        try:
            found = api.search(
                strategies=[strategy for text in strategies for strategy in parse_strategies(text)],
                sizes=numbers(sizes, "--sizes"),
                tokens=[] if tokens is None else numbers(tokens, "--tokens"),
                output=output,
                progress=out.progress,
                **given,
            )
        except (Interrupted, KeyboardInterrupt):
            kept = "nothing was kept; with --output the same command resumes where it was stopped"
            if output is not None:
                kept = f"finished results are kept in {output}; the same command resumes from there"
            more = {} if output is None else {"path": str(output)}
            raise Failure(STOPPED, [kept], **more) from None
        metrics = found.to_json()
        document = metrics | ({} if output is None else {"path": str(output)})
        results = metrics["results"]
        if all(result["ungraded"] == result["tasks"] for result in results):
            reasons = {reason: None for result in results for reason in result["reasons_ungraded"]}
            lines = [f"none of {sum(result['tasks'] for result in results)} chosen answers could be graded:", *reasons]
            raise Failure(NOTHING_LEARNT, lines, **document)
        out.json(document)
        if as_json:
            return
        out.show("", table(metrics))
        for further in (levels_table(metrics), equal_table(metrics)):
            out.show(*([] if further is None else ["", further]))
        ungraded = sum(result["ungraded"] for result in metrics["results"])
        if ungraded:
            out.show("", f"{ungraded} chosen answers could not be graded and are left out:")
            reasons = {reason for result in metrics["results"] for reason in result["reasons_ungraded"]}
            out.show(*(f"  {reason}" for reason in sorted(reasons)))
        unanswered = sum(result["unanswered"] for result in metrics["results"])
        if unanswered:
            out.show("", f"{unanswered} searches finished no trajectory and count as incorrect")
        out.show(*(f"note: {note}" for note in metrics["notes"]))
        if output is not None:
            out.show("", f"metrics  {output / 'search.json'}", f"plot     {output / 'search.png'}")


def parse_strategies(text: str) -> list[Any]:
    """Strategies as a user types them: names with commas between them, or ``{rollout: ..., choose: ...}``.

    Raises:
        RecipeError: the text begins with a brace but is not YAML.
    """
    from lyceum.recipe.schema import read_override

    if not text.lstrip().startswith("{"):
        return text.replace(" ", "").split(",")
    _, strategy = read_override(f"strategy={text}")
    return [strategy]
