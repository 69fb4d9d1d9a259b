"""``lyceum push``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import Output, printing


@takes("lyceum.api:push", "best public")
def command(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    repository: Annotated[str, typer.Argument(help="owner/name on the hub; made if there is none.")],
    *,
    best: Annotated[
        bool, typer.Option("--best", help="The model in best/ (evaluate.save_best) and not the last.")
    ] = False,
    public: bool,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be uploaded, and ask the hub nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Upload a run's model and its card to the Hugging Face hub.

    For example: lyceum push runs/demo me/demo

    The card, README.md, names models and tasks by the paths that you gave: read it before --public.
    """
    with printing(as_json) as output:
        from lyceum import api

        which = "best" if best else "model"
        if dry_run:
            return rehearse(output, run, repository, which, public=public)
        address = api.push(run, repository, which=which, public=public)
        output.show(address)
        output.json({"repository": address})


def rehearse(output: Output, run: Path, repository: str, which: Literal["model", "best"], *, public: bool) -> None:
    """Show the files that would be uploaded, and who could read them."""
    from lyceum.analysis.push import files_to_upload
    from lyceum.utils.atomic_files import size

    files = files_to_upload(run, repository, which=which)
    bytes_of = {file.relative_to(run / which).as_posix(): file.stat().st_size for file in files}
    for name, number in bytes_of.items():
        output.show(f"{size(number):>10}  {name}")
    readers = "everybody" if public else "you alone"
    output.show(
        f"{size(sum(bytes_of.values())):>10}  to {repository}, which {readers} could read",
        "nothing was uploaded, and the hub was not asked whether it is there (--dry-run)",
    )
    output.json({"repository": repository, "public": public, "files": bytes_of})
