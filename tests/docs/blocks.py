"""The fenced blocks of a page, as a reader would use them.

A block with ``title="FILE"`` is that file. Of ``bash`` blocks the ``lyceum`` lines are run, of ``console`` blocks those
after ``$ ``, and what follows is expected in the output, ``...`` standing for any lines; ``python`` blocks are run. A
block below ``<!-- not run: why -->`` is only checked: options, recipe and keys must be valid, Python must compile.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import typer

from lyceum.cli.app import app
from lyceum.core.component import kinds
from lyceum.core.paper_folders import use
from lyceum.recipe.files import read_merged
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

FENCE = re.compile(r"^(?P<mark> *(?:```+|~~~+)) *(?P<language>[\w-]*)(?P<about>[^`]*)$")
TITLE = re.compile(r'title="([^"]+)"')
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")

IN_CELL = re.compile(r"(refused: )?`(lyceum [^`]+)`")

SMALLEST = (
    *("steps=1", "tasks_per_step=4", "rollout.samples=4"),
    *("evaluate.n=2", "evaluate.k=[1]", "evaluate.samples=2", "evaluate.every=0", "evaluate.greedy=false", "track=[]"),
)
"""Keys that make a run short, each where the recipe has it."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: of its first line in the page, from 1.
        not_run: why it is not run; None where it is.
    """

    line: int
    language: str
    text: str
    title: str | None
    not_run: str | None


@dataclass
class Command:
    """A ``lyceum`` command, and the lines that its output is to hold in this order."""

    line: int
    words: list[str]
    expected: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks. An indented command is refused: it would not be tested, and is cut where it is long."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        if opened is None:
            assert not lines[number].startswith("    lyceum "), f"{page.name}:{number + 1}: write a ```bash block"
            number += 1
            continue
        mark, first = opened["mark"], number + 1
        number = first
        while lines[number].rstrip() != mark:
            number += 1
        indent = len(mark) - len(mark.lstrip())
        above = next((line for line in reversed(lines[: first - 1]) if line.strip()), "")
        reason = NOT_RUN.search(above)
        title = TITLE.search(opened["about"])
        yield Block(
            first,
            opened["language"],
            "\n".join(line[indent:] for line in lines[first:number]) + "\n",
            title and title[1],
            reason and reason[1],
        )
        number += 1


def commands_of(block: Block) -> list[Command]:
    """The ``lyceum`` commands of a ``bash`` or ``console`` block."""
    found: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), block.line + 1))
    for number, line in lines:
        prompted = block.language == "console" and line.startswith("$ ")
        if block.language == "bash" or prompted:
            text = line.removeprefix("$ ") if prompted else line
            while text.endswith("\\"):
                text = text[:-1] + next(lines)[1]
            words = shlex.split(text, comments=True)
            if words and words[0] == "lyceum":
                found.append(Command(number, words[1:]))
        elif found and line.strip():
            found[-1].expected.append(line.strip())
    return found


def commands_in_tables(page: Path) -> Iterator[tuple[Command, bool]]:
    """The ``lyceum`` commands in cells of a page's tables, and whether each is to be refused.

    Those of a cell that says "(not in the test)", or which test runs them, are left out.
    """
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for cell in line.split(" | ") if line.startswith("| ") else []:
            if "(not in the test)" not in cell and "(tested by" not in cell:
                for refused, command in IN_CELL.findall(cell):
                    yield Command(number, shlex.split(command)[1:]), bool(refused)


def shortened(words: list[str]) -> list[str]:
    """The command with the smallest settings that it takes."""
    use([folder for before, folder in pairwise(words) if before == "--papers"])
    if words[0] == "train":
        return [*words, *smallest(words[1], keys_of(words))]
    if words[0] == "compare":
        return [*words, "--seeds", "1", "--tokens", "1000", *smallest(words[1].partition("@")[0], [])]
    if words[0] == "eval":
        return [*words, "--n", "2"]
    if words[0] == "search":
        return [*words, "--n", "2", "--sizes", "1,2"]
    if words[0] == "boundary":
        return [*words, "--n", "3", "--samples", "2"]
    if words[0] == "doctor":
        return [*words, "--samples", "4", "--tokens", "4"]
    return words


def keys_of(words: list[str]) -> list[str]:
    """The keys of a ``train`` command: neither options nor their values."""
    return [
        word
        for before, word in pairwise(words[1:])
        if before not in ("--name", "--nproc", "--papers") and word[0] != "-"
    ]


def smallest(recipe: str, named: list[str]) -> list[str]:
    """Those of ``SMALLEST`` that a recipe takes after the keys that a command names itself."""
    stages = read_merged(recipe).get("stages") or [{}]
    keys = {key for stage in stages for key in kinds("stages")[stage.get("kind", "online")].model_fields}
    found: list[str] = []
    for setting in SMALLEST:
        key = setting.partition("=")[0]
        of_stage = key.partition(".")[0] not in ("evaluate", "track")
        if (of_stage and key.partition(".")[0] not in keys) or f"{key}=0" in named:  # 0: the command does without
            continue
        try:
            load_recipe(recipe, [*named, *found, setting, "trust_code=true"])
        except RecipeError:
            continue
        found.append(setting)
    return found


def check(words: list[str]) -> None:
    """Raise where a command that is not run has an unknown option, or names a recipe or key that does not exist."""
    typer.main.get_group(app).commands[words[0]].make_context(words[0], words[1:])
    if words[0] == "train" and not any(word.endswith("...") for word in words):
        try:
            load_recipe(words[1], [*keys_of(words), "trust_code=true"])
        except RecipeError as error:
            # All keys were read; what is missing is a package that the page says is needed.
            if not all("is not installed" in line for line in error.lines):
                raise
