"""``lyceum search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, Model, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import NOTHING_LEARNT, STOPPED


@takes("lyceum.api:search", "tasks strategy sizes value tokens n SAMPLING reward seed output")
def command(
    model: Model,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Further settings: tasks.levels=[7,8]; of one strategy beam.width=2, of all with steps "
            "step.by=lines, of the value model value.length_power=0.5 (see: lyceum components rollout).",
        ),
    ] = None,
    *,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="greedy, best-of-n, majority, filtered-majority, weighted-majority, beam, dvts, best-first, mcts, "
            "value-mcts, or all; or any rollout and a choice (first, best, majority, weighted-majority): "
            "'{rollout: {kind: segments, segment_tokens: 16}, choose: best}'. May be given several times."
        ),
    ] = None,
    output: Path | None,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Search for answers at test time: accuracy against tokens spent, every strategy side by side.

    A strategy is a rollout, which grows a tree of trajectories, and a choice of one of them by votes, by likelihood or
    by a value model; the verifier only grades the chosen one afterwards. A size is the number of trajectories per task.
    Tokens spent are those fed to the model (shared prefixes count once), plus those that a value model read.

    For example: lyceum search runs/demo --strategy all --sizes 1,4,16 --output search
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.test_time.show import equal_table, levels_table, table
        from lyceum.utils.errors import Interrupted

        try:
            found = api.search(
                model,
                overrides=keys or [],
                strategies=[each for text in strategy or ["all"] for each in parse_strategies(text)],
                output=output,
                progress=out.progress,
                **how,
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
