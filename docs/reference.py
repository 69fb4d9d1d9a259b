"""MkDocs hook: the pages that are made from the code while the site is built, and those that stand outside ``docs/``.

Commands are the help that typer prints, recipes and components what ``lyceum recipes`` and ``lyceum components`` say.
Links of the pages are those of the repository (``../CONTRIBUTING.md``), and are rewritten to the site's.
"""

from __future__ import annotations

import re
from collections import Counter
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
        "reference/keys.md": keys(),
        **recipes(),
        **components(),
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
        arguments = {parameter.name: argument(parameter) for parameter in command.params if is_argument(parameter)}
        lines += [f"## lyceum {name}", ""]
        lines += ["```bash", " ".join(["lyceum", name, *arguments.values(), "[OPTIONS]"]), "```", ""]
        for paragraph in (command.help or "").split("\n\n"):
            said = " ".join(paragraph.split())
            example = said.removeprefix("For example: ")
            is_code = example != said and example.startswith("lyceum ") and ": lyceum" not in example
            lines += ["For example:", "", "```bash", example, "```", ""] if is_code else [escaped(said), ""]
        lines += ["| argument | meaning |", "|---|---|"]
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is not None:  # hidden
                shown = arguments.get(parameter.name, record[0])
                lines.append(f"| `{cell(shown)}` | {cell(escaped(record[1]))} |")
        lines.append("")
    return "\n".join(lines)


def is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def argument(parameter: Any) -> str:
    """``RECIPE``, ``[KEY=VALUE ...]``: an argument as one types it."""
    word = (parameter.metavar or parameter.name.upper()).replace("]...", " ...]")
    if " " in word:  # says itself what is optional
        return word
    word = f"{word} ..." if parameter.nargs == -1 else word
    return word if parameter.required else f"[{word}]"


PURPOSES: dict[str, tuple[str, ...]] = {
    "Agents": (
        *("rollout turns", "rollout branching-turns", "guidance self-play", "guidance proposer-solver"),
        "guidance pioneer-observer",
    ),
    "Programs and queries": ("reward code", "reward code-efficiency", "reward code-lines", "tasks queries"),
    "Plain text": ("tasks text",),
    "Reward models and judges": (
        *("stages reward-model", "credit prime", "credit thoughts", "reward model", "reward drm", "reward rubric"),
        *("reward judge", "reward brpo", "reward principles", "reward ranking", "reward feedback", "credit by-part"),
        *("reward judged-steps", "reward win-probability", "reward clip-delta", "tasks chain-judgements"),
    ),
    "Trees and search": (
        *("rollout mcts", "rollout value-mcts", "rollout best-first", "rollout segments", "rollout look-ahead"),
        *("rollout critical-tokens", "rollout next-steps", "rollout rethink-mcts", "stages search-and-distil"),
    ),
    "Preferences and offline data": (
        *("stages offline", "objective dpo", "objective orpo", "objective kto", "objective inpo", "objective trpa"),
    ),
    "Curriculum": (
        *("curriculum resorted", "curriculum alp-gmm", "curriculum posterior", "curriculum hard-filter"),
        *("curriculum family-difficulty", "curriculum dump", "curriculum angles", "curriculum knapsack"),
        *("curriculum prompt-value", "curriculum tiers", "curriculum self-evolving", "curriculum shrinking-budget"),
        *("curriculum phases", "curriculum recap", "curriculum difficulty-weight", "collect"),
    ),
    "Guidance": ("guidance", "stages interleaved", "objective amft"),
    "Recorded groups": ("replay",),
    "Several stages or domains": ("several", "tasks mixture"),
    "Starting points": ("own",),
    "Policy gradient": ("",),
}
"""Groups of recipes, and the components of which a recipe in one has any. The first group that fits is a recipe's: the
special ones come before the usual ones, and on the page after them."""


def recipes() -> dict[str, str]:
    """A page per group of recipes, with their files, and one that leads to them."""
    from lyceum.recipe.files import described_recipes, recipe_text
    from lyceum.recipe.schema import load_recipe

    tables: dict[str, list[str]] = {purpose: [] for purpose in reversed(PURPOSES)}
    files: dict[str, list[str]] = {purpose: [] for purpose in PURPOSES}
    for name, about in described_recipes().items():
        has = traits(load_recipe(name, ["trust_code=true"]).resolved(), own=not about["paper"])
        purpose = next(purpose for purpose, any_of in PURPOSES.items() if has.intersection(any_of))
        number = about["paper"].removeprefix("arXiv:")
        paper = f"[arXiv:{number}](https://arxiv.org/abs/{number})" if number else ""
        said = escaped(about["summary"] or about["title"])
        tables[purpose].append(f"| [`{name}`](recipes/{slug(purpose)}.md#{name}) | {cell(said)} | {paper} |")
        files[purpose] += [f"## {name}", "", f"{said}{f' ({paper})' if paper else ''}", ""]
        files[purpose] += ["```yaml", recipe_text(name).rstrip(), "```", ""]
    lead = f"""# Recipes

`lyceum train NAME` trains by one, `lyceum recipes show NAME` prints it whole, with every [key](keys.md) and its
meaning. Each links to its file, which says what differs from the recipe that it extends.

{", ".join(f"[{purpose}](#{slug(purpose)})" for purpose in tables)}
"""
    head = ["| recipe | what it does | paper |", "|---|---|---|"]
    parts = ["\n".join([f"## {purpose}", "", *head, *found, ""]) for purpose, found in tables.items()]
    return {"reference/recipes.md": "\n".join([lead, *parts])} | {
        f"reference/recipes/{slug(purpose)}.md": "\n".join([f"# Recipes: {purpose.lower()}", "", *found])
        for purpose, found in files.items()
    }


def slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def traits(recipe: dict[str, Any], *, own: bool) -> set[str]:
    """What ``PURPOSES`` asks of a recipe: ``SLOT KIND`` of its components, and a few words more."""
    stages = [stage for stage in recipe["stages"] if stage["kind"] != "sft"]
    found = {"", f"tasks {recipe['tasks']['kind']}", *(f"stages {stage['kind']}" for stage in stages)}
    for slot, value in [("reward", recipe["reward"]), *(item for stage in stages for item in stage.items())]:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and "kind" in each:
                found.add(f"{slot} {each['kind']}")
                if slot == "guidance":
                    found.add(slot)
    found.update("replay" for stage in stages if stage.get("replay"))
    found.update("collect" for stage in stages if (stage.get("collect") or {}).get("keep") == "solved-between")
    return found | ({"own"} if own else set()) | ({"several"} if len(stages) > 1 else set())


def keys() -> str:
    from lyceum.analysis.explain import commented, settings, shown
    from lyceum.recipe.schema import Recipe, load_recipe

    found = settings(Recipe)
    parts: dict[str, list[str]] = {"": [], "model": [], "evaluate": []}
    for setting in found:
        part, dot, _ = setting["key"].partition(".")
        if part not in parts or dot:
            parts[part if part in parts else ""].append(row(setting, shown))
    head = "| key | default | allowed | meaning |\n|---|---|---|---|\n"
    run, model, evaluate = (head + "\n".join(part) for part in parts.values())
    whole = "\n".join(commented(load_recipe("grpo"), 100))
    return f"""# Keys of a recipe

On the command line keys are dotted (`evaluate.n=50`), in a file they are nested. `lyceum recipes show RECIPE` prints
those of one recipe with their values. A component's keys are on the page of its [slot](components.md).

## The run

{run}

## `model`: what is trained

{model}

## `evaluate`: how accuracy is measured

{evaluate}

## `stages`: how it is trained

A stage's keys are those of its kind, mostly [`online`](components/stages.md#online). A stage's key named alone
(`learner.lr=1e-5`, `rollout.samples=16`) goes to every stage that has it, and to one stage by the stage's number or
name (`stages.0.steps=10`).

## A whole recipe

What `lyceum recipes show grpo` prints:

```yaml
{whole}
```
"""


def components() -> dict[str, str]:
    """A page per slot, and one that leads to them."""
    from lyceum.analysis.explain import described
    from lyceum.core.component import kinds
    from lyceum.core.paper_folders import SLOTS

    lead = ["# Components", ""]
    lead += ["What can stand in each slot of a recipe; `lyceum components SLOT` prints the same.", ""]
    lead += ["| slot | kinds |", "|---|---|"]
    pages: dict[str, str] = {}
    for slot in SLOTS:
        found = {kind: described(model) for kind, model in kinds(slot).items()}
        linked = (f"[`{kind}`](components/{slot}.md#{kind})" for kind in found)
        lead.append(f"| [{slot}](components/{slot}.md) | {', '.join(linked)} |")
        pages[f"reference/components/{slot}.md"] = page_of_slot(slot, found)
    return {"reference/components.md": "\n".join(lead), **pages}


def page_of_slot(slot: str, found: dict[str, dict[str, Any]]) -> str:
    from lyceum.analysis.explain import shown

    rows = {kind: {row(setting, shown): setting["key"] for setting in of["settings"]} for kind, of in found.items()}
    counts = Counter(line for of in rows.values() for line in of)
    common = {line: None for of in rows.values() for line in of if counts[line] >= max(3, len(found) / 2)}
    head = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    lines = [f"# {slot}", "", f"`{slot}=KIND`, or `{slot}: {{kind: KIND, ...}}` in a file:", ""]
    lines += [f"- [`{kind}`](#{kind}): {escaped(of['about'].splitlines()[0])}" for kind, of in found.items()]
    lines.append("")
    if common:
        lines += ["## Settings that most kinds have", "", *head, *common, ""]
    for kind, of in found.items():
        lines += [f"## {kind}", "", *(f"{escaped(line)}\n" for line in of["about"].split("\n"))]
        lines += formulas(of["equations"])
        lines += [f"{place(of)}", ""]
        own = [line for line in rows[kind] if line not in common]
        lines += [*head, *own, ""] if own else []
        shared = dict.fromkeys(key.partition(".")[0] for line, key in rows[kind].items() if line in common)
        if shared:
            names = ", ".join(f"`{name}`" for name in shared)
            lines += [f"{'Also' if own else 'Settings'}, as [most kinds](#settings-that-most-kinds-have): {names}.", ""]
    return "\n".join(lines)


def formulas(found: list[dict[str, str]]) -> list[str]:
    """A component's equations, each below what it is of and above its source."""
    lines: list[str] = []
    for of in found:
        lines += [escaped(of["about"]), "", "```text", of["equation"], "```", ""]
        lines += [f"Source: {escaped(of['source'])}", ""] if of["source"] else []
    return lines


def place(of: dict[str, Any]) -> str:
    """A component's paper, where it is one's alone, and its file."""
    file = f"`{of['file']}`"
    if not of["paper"]:
        return f"File: {file}, of the library."
    arxiv = f" ([arXiv:{of['arxiv']}](https://arxiv.org/abs/{of['arxiv']}))" if of["arxiv"] else ""
    return f"Paper: {escaped(of['title'])}{arxiv}. File: {file}."


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
