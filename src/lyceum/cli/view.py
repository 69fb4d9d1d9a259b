"""``lyceum view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import printing


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write a run's report.html again and print its path."""
    from lyceum.run.folder import recover
    from lyceum.training.view.report import write_report
    from lyceum.utils.errors import RecipeError

    with printing(as_json) as output:
        recover(run)
        if not (run / "recipe.yaml").is_file():
            compared = run / "comparison.png"
            instead = f"; a comparison's plot is {compared}" if compared.is_file() else ""
            if (near := "runs" / run).joinpath("recipe.yaml").is_file():
                instead = f" (did you mean {near}?)"
            raise RecipeError(f"run: {run} is not a run's folder (no recipe.yaml){instead}")
        report = write_report(run)
        if open_it:
            import webbrowser

            webbrowser.open(report.resolve().as_uri())
        output.show(str(report))
        output.json({"report": str(report)})
