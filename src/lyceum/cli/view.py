"""``lyceum view``."""

from __future__ import annotations

from pathlib import Path

from lyceum.cli.output import printing


def command(run: Path, *, open_it: bool, as_json: bool) -> None:
    from lyceum.view.report import write_report

    with printing(as_json) as output:
        report = write_report(run)
        if open_it:
            import webbrowser

            webbrowser.open(report.resolve().as_uri())
        output.show(str(report))
        output.json({"report": str(report)})
