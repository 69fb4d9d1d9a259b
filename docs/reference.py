"""MkDocs hook: the pages that are made from the code while the site is built, and those that stand outside ``docs/``.

Commands are the help that typer prints, recipes and components what ``lyceum recipes`` and ``lyceum components`` say.
Links of the pages are those of the repository (``../CONTRIBUTING.md``), and are rewritten to the site's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
"""Pages of the repository that the site has too, under the same path."""


class Sections(griffe.Extension):
    """Docstrings as griffe reads them: a blank line before each section, no roles of Sphinx."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"\n *(Returns|Raises):\n", r"\n\n\1:\n", obj.docstring.value)
            obj.docstring.value = re.sub(r":func:`(?:lyceum\.)?(\w+)`", r"`\1`", text)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    made = {
        "reference/commands.md": commands(),
        "reference/recipes.md": recipes(),
        "reference/components.md": components(),
        **{place: (ROOT / place).read_text(encoding="utf-8") for place in OUTSIDE},
    }
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    for result in sorted((ROOT / "benchmarks/results").glob("*.json")):
        files.append(File.generated(config, f"benchmarks/results/{result.name}", abs_src_path=str(result)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    if place in OUTSIDE:
        up = "../" * place.count("/")
        return re.sub(r"\]\((?:\.\./)?docs/", f"]({up}", markdown)
    return markdown.replace("](../", "](") if "/" not in place else markdown


def commands() -> str:
    from lyceum.cli.app import app

    group = typer.main.get_command(app)
    lines = ["# Commands", "", str(group.help), "", f"{group.epilog}", ""]
    for name, command in group.commands.items():
        context = command.make_context(name, [], parent=None, resilient_parsing=True)
        lines += [f"## lyceum {name}", ""]
        lines += ["```text", " ".join(["lyceum", name, *command.collect_usage_pieces(context)]), "```", ""]
        for paragraph in (command.help or "").split("\n\n"):
            lines += [escaped(paragraph), ""]
        lines += ["| argument | meaning |", "|---|---|"]
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is not None:  # hidden
                lines.append(f"| `{cell(record[0])}` | {cell(escaped(record[1]))} |")
        lines.append("")
    return "\n".join(lines)


def recipes() -> str:
    from lyceum.recipe.files import described_recipes

    lines = ["# Recipes", "", "Each one whole, with every key: `lyceum recipes show NAME`.", ""]
    lines += ["| recipe | what it does | paper |", "|---|---|---|"]
    for name, about in described_recipes().items():
        paper = about["paper"]
        link = f"[{paper}](https://arxiv.org/abs/{paper.removeprefix('arXiv:')})" if paper else ""
        lines.append(f"| `{name}` | {cell(escaped(about['summary'] or about['title']))} | {link} |")
    return "\n".join(lines)


def components() -> str:
    from lyceum.cli.components import described
    from lyceum.cli.explain import SLOTS, shown
    from lyceum.core.component import kinds

    lines = ["# Components", "", "The components of each slot of a recipe, with their settings and defaults.", ""]
    for slot in SLOTS:
        lines += [f"## {slot}", ""]
        for kind, model in kinds(slot).items():
            component = described(model)
            lines += [f"### {slot} {kind}", "", *(f"{escaped(line)}\n" for line in component["about"].split("\n"))]
            if not component["settings"]:
                continue
            lines += ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
            lines += [row(setting, shown) for setting in component["settings"]]
            lines.append("")
    return "\n".join(lines)


def row(setting: dict[str, Any], shown: Any) -> str:
    default = "needed" if setting["required"] else "" if setting["type"] == "settings" else shown(setting["default"])
    default = default if len(default) <= 60 else f"{default[:57]}..."
    allowed = f"{setting['type']} {setting['bounds']}".strip()
    code = f"`{cell(default)}`" if default else ""
    return f"| `{setting['key']}` | {code} | {cell(escaped(allowed))} | {cell(escaped(setting['about']))} |"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def escaped(text: str) -> str:
    """Help is plain text: what Markdown would read as markup stands as it is."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([*_`\[\]])", r"\\\1", text)
