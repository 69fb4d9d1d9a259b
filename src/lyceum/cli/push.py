"""``lyceum push``."""

from __future__ import annotations

from pathlib import Path

from lyceum.cli.output import printing


def command(run: Path, repository: str, *, best: bool, public: bool, as_json: bool) -> None:
    with printing(as_json) as output:
        from lyceum import api

        address = api.push(run, repository, which="best" if best else "model", public=public)
        output.show(address)
        output.json({"repository": address})
