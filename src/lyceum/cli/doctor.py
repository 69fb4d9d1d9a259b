"""``lyceum doctor``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, Model, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import FAILED


@takes("lyceum.api:doctor", "engine learner server samples tokens seed length")
def command(
    model: Model,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of the run to examine: learner.autocast=bfloat16 engine.pack_weights=false model.lora=true "
            "tasks=data.jsonl (see: lyceum components engine, lyceum components learner).",
        ),
    ] = None,
    *,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Check that a model is sampled and trained right on this machine, and how fast.

    Whether the chat template and the end of sequence fit the model; the engine's log-probabilities are those of the
    learner and of transformers; gradients are those in float64; new weights reach the engine and the saved folder;
    equal seeds give equal samples. Each line says what was found; where a check fails, also what is allowed and what
    to do.

    For example: lyceum doctor path/to/model, or before a run: lyceum doctor path/to/model learner.autocast=bfloat16,
    or of a vLLM server: lyceum doctor path/to/model --server http://node2:8000

    Seconds for the small model, about a minute for 135M parameters on two cores; --samples 4 --tokens 8 is quicker. No
    file is left behind. Exit code 1 if a check fails.
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.tables import checks_table

        report = api.doctor(model, keys or [], progress=out.progress, **how)
        document = report.to_json()
        checked = [result for result in report.results if result.status in ("ok", "fails")]
        out.json(document)
        out.show("", checks_table(report.results))
        out.show(*(result.values["traceback"] for result in report.failures if "traceback" in result.values))
        if failed := report.failures:
            names = ", ".join(result.check for result in failed)
            raise Failure(FAILED, [f"{len(failed)} of {len(checked)} checks failed: {names}"], **document)
        out.show("", f"all {len(checked)} checks passed in {report.seconds:.0f} s")
