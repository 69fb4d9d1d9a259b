"""Numbers of a page and where they stand in ``benchmarks/results``: what the comments ``<!-- figures: ... -->`` say.

Above a table, in one line: ``<!-- figures: FILE ROWS KEY VALUE... -->``. ROWS is a list in the file, of which KEY is
the name in the row's first cell, or a mapping by these names (``=``); each VALUE leads to the figure of a cell, in %
where the cell has 1 decimal, as it is where it has 3. In YAML,
above a table, or in the section whose text it speaks of:

    <!-- figures:
    file: trees.json
    in: learn.settings.signs, 60000 tokens.rows    # where all paths begin, unless they begin with "/"
    rows: [grpo, deepsearch]                       # what {} stands for in each row; without it the first cell
    columns:                                       # of each cell after the first
      - "[recipe={}].final.overall %"              # mean, low and high
      - ["[recipe={}].seconds", "[recipe={}].steps"]   # two numbers of one cell
      - null                                       # a cell without a number
    unchecked: {column's heading: why no file has it}
    text:                                          # what the section says: its numbers, in their order
      "it ends at 79.2 % [63, 95]": "[recipe=deepsearch].final.overall %"
    sizes: [for 120 steps]                         # what the section says that was set, and is no figure of a run
    -->

A path's parts are keys, ``*`` (all values), and ``[key=value]`` (the one element that has it). Where it leads to a text
the cell shows that text. Units after it: ``%``, ``k`` (thousands), ``t`` (per thousand), ``±`` (a mean and half its
interval). ``A - B`` is the difference, of two lists the mean and interval of their paired differences; ``A / B`` the
quotient; ``A .. B`` a range; ``PATH or 0`` is 0 where the file has no such key. ``<!-- figures: {none: WHY} -->``
stands above a table of which no file has anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lyceum.evaluation.intervals import mean_over_seeds

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
COMMENT = re.compile(r"<!-- figures:\s+(.+?)\s*-->", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|\.\d)")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")
HEADING = re.compile(r"(?m)^#+ ")
UNITS = {"%": 100.0, "k": 0.001, "t": 1000.0}


class Wrong(Exception):
    """A number that is not its file's, or that nothing leads to."""


class Absent(Wrong):
    """A path that its file does not have."""


@dataclass(frozen=True)
class Table:
    """A table of a page: its line there, its headings, its rows' cells, and the comment above it."""

    line: int
    headings: list[str]
    rows: list[list[str]]
    figures: dict[str, Any] | None

    @property
    def has_numbers(self) -> bool:
        return any(numbers(cell) for row in self.rows for cell in row[1:])


def tables_of(text: str) -> Iterator[Table]:
    """Tables outside of fenced blocks, with the comment that stands right above them."""
    lines = without_blocks(text).split("\n")
    at = 0
    while at < len(lines):
        if not (lines[at].startswith("|") and at + 1 < len(lines) and re.match(r"\|[-|: ]+\|$", lines[at + 1])):
            at += 1
            continue
        end = at + 2
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        above = "\n".join(lines[:at]).rstrip()
        found = list(COMMENT.finditer(above))
        given = parsed(found[-1][1]) if found and found[-1].end() == len(above) else None
        yield Table(at + 1, cells(lines[at]), [cells(line) for line in lines[at + 2 : end]], given)
        at = end


def texts_of(text: str) -> Iterator[tuple[int, dict[str, Any], str]]:
    """(line, comment, its section) of the comments that speak of text."""
    text = without_blocks(text)
    heads = [0, *(found.start() for found in HEADING.finditer(text)), len(text)]
    for found in COMMENT.finditer(text):
        given = parsed(found[1])
        if given.get("text"):
            begin = max(head for head in heads if head <= found.start())
            end = min(head for head in heads if head > found.start())
            yield text[: found.start()].count("\n") + 1, given, COMMENT.sub("", text[begin:end])


def untold(text: str) -> list[str]:
    """Each number of a page's prose that no comment speaks of, with the words before it.

    Raises:
        Wrong: a comment speaks of words that the page does not have.
    """
    text = without_blocks(text)
    given = [parsed(found[1]) for found in COMMENT.finditer(text)]
    prose = "\n".join(line for line in COMMENT.sub("", text).split("\n") if not line.startswith("|"))
    whole = left = " ".join(prose.split())
    for words in sorted({" ".join(words.split()) for each in given for words in phrases(each)}, key=len, reverse=True):
        if words not in whole:
            raise Wrong(f"the page does not say {words!r}")
        left = left.replace(words, " ")
    left = CODE.sub(" ", left)
    return [left[max(0, found.start() - 40) : found.end()] for found in NUMBER.finditer(left)]


def phrases(given: Mapping[str, Any]) -> list[str]:
    """The words of a page that a comment speaks of."""
    return [*given.get("text", ()), *given.get("sizes", ())]


def without_blocks(text: str) -> str:
    """Fenced blocks as empty lines."""
    return re.sub(r"(?ms)^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def parsed(comment: str) -> dict[str, Any]:
    """A comment of either form."""
    words = comment.split()
    if words[0].endswith(".json"):
        file, rows, key, *values = words
        places = [f"{rows}.{{}}" if key == "=" else f"{rows}[{key}={{}}]"]
        return {"file": file, "columns": [f"{places[0]}.{value}" for value in values], "short": True}
    return yaml.safe_load(comment)


def check_table(table: Table) -> None:
    """Each cell's numbers are those of the file, and each column with numbers is spoken of.

    Raises:
        Wrong: one that is not.
    """
    given = table.figures
    if given is None:
        raise Wrong("a table with numbers has no comment `figures:` above it")
    if "none" in given:
        return
    short = given.get("short", False)
    names = given.get("rows") or [row[0].strip("`") for row in table.rows]
    if len(names) != len(table.rows):
        raise Wrong(f"rows: {len(names)} names for {len(table.rows)} rows")
    columns = given.get("columns", ())
    for number, heading in enumerate(table.headings[1:]):
        spec = columns[number] if number < len(columns) else None
        if spec is None and (short or heading in given.get("unchecked", ())):
            continue
        for name, row in zip(names, table.rows, strict=True):
            shown, where = row[1 + number], f"row {row[0]!r}, column {heading!r}"
            if spec is None and numbers(shown):
                raise Wrong(f"{where}: nothing leads to {shown!r}")
            if spec is not None and (numbers(shown) or not short):
                check_shown(shown, spec, given, name=str(name), where=where)


def check_text(given: Mapping[str, Any], text: str) -> None:
    """Each sentence named is in the text, and its numbers are those of the file.

    Raises:
        Wrong: one that is not.
    """
    flat = " ".join(text.split())
    for sentence, spec in given["text"].items():
        if " ".join(sentence.split()) not in flat:
            raise Wrong(f"the text does not say {sentence!r}")
        check_shown(sentence, spec, given, name="", where=repr(sentence))


def check_shown(shown: str, spec: Any, given: Mapping[str, Any], *, name: str, where: str) -> None:
    specs = [spec] if isinstance(spec, str) else spec
    has = numbers(shown)
    if not has and shown in ("", "-"):
        return
    expected: list[tuple[float, float]] = []
    for each in specs:
        found, factor = value_of(each.replace("{}", name), given)
        if isinstance(found, str):
            if found != shown:
                raise Wrong(f"{where}: shows {shown!r}, but {each} is {found!r}")
            return
        if given.get("short"):
            factor = 1.0 if len(has[0].partition(".")[2]) == 3 else 100.0
        expected += [(figure, factor) for figure in found]
    if len(has) != len(expected):
        raise Wrong(f"{where}: {len(has)} numbers in {shown!r} for {[round(f * k, 4) for f, k in expected]}")
    for number, (figure, factor) in zip(has, expected, strict=True):
        decimals = len(number.partition(".")[2])
        if abs(float(number.replace(",", "")) - factor * figure) > 0.5001 * 10**-decimals:
            raise Wrong(f"{where}: shows {number} where the file has {factor * figure:.{decimals + 3}f}")


def numbers(shown: str) -> list[str]:
    """The numbers of a text, in their order; code, and where links lead to, have none."""
    return NUMBER.findall(CODE.sub(" ", shown))


def value_of(spec: str, given: Mapping[str, Any]) -> tuple[str | list[float], float]:
    """What a path, or two of them and a sign, leads to: a text, or figures; and the factor of its unit."""
    path, _, absent = spec.partition(" or 0")
    words, factor, half = (path + absent).split(" "), 1.0, False
    while words[-1] in (*UNITS, "±"):
        unit = words.pop()
        factor, half = factor * UNITS.get(unit, 1.0), half or unit == "±"
    parts = re.split(r" (-|/|\.\.) ", " ".join(words))
    try:
        found = [followed(path, given) for path in parts[::2]]
    except Absent:
        if " or 0" not in spec:
            raise
        return [0.0], factor
    if len(found) == 1:
        if isinstance(found[0], str):
            return found[0], 1.0
        of = flat(found[0])
        return ([of[0], (of[2] - of[1]) / 2] if half else of), factor
    [sign], [first, second] = parts[1::2], [flat(each) for each in found]
    if sign == "..":
        return [min(first), max(second)], factor
    if sign == "/":
        return [a / b for a, b in zip(first, second, strict=True)], factor
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) == 1:
        return differences, factor
    interval = mean_over_seeds(differences)
    return [interval.mean, interval.low, interval.high], factor


def flat(value: Any) -> list[float]:
    """The figures of a value: of an interval its mean, low and high."""
    if isinstance(value, Mapping):
        return [value[key] for key in ("mean", "low", "high")]
    if isinstance(value, list):
        return [figure for each in value for figure in flat(each)]
    if value is None:
        raise Wrong("leads to nothing (null)")
    return [value]


def followed(path: str, given: Mapping[str, Any]) -> Any:
    """The value at a path's end."""
    path = path[1:] if path.startswith("/") else f"{given.get('in', '')}.{path}".lstrip(".").replace(".[", "[")
    at: Any = results(given["file"])
    for part in re.findall(r"(?:\[[^\]]*\])+|[^.\[]+", path):
        if part == "*":
            at = list(at.values()) if isinstance(at, Mapping) else at
        elif part.startswith("["):
            wanted = dict(condition.split("=", 1) for condition in part[1:-1].split("]["))
            of = [each for each in at if all(str(each[key]) == value for key, value in wanted.items())]
            if len(of) != 1:
                raise Wrong(f"{path}: {len(of)} elements have {part}")
            [at] = of
        elif isinstance(at, list):
            at = at[int(part)] if part.isdecimal() else [each[part] for each in at]
        elif part not in at:
            raise Absent(f"{path}: no {part!r}; there are {', '.join(map(str, at))}")
        else:
            at = at[part]
    return at


@cache
def results(file: str) -> Any:
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))
