"""The papers of the field: what each does, which recipe follows it, and what is missing for the others.

The rows are in ``papers.jsonl``, those of papers' folders in each one's ``row.json``; how a recipe differs from its
paper is in the comments of the recipe's file.
``python -m lyceum.analysis.papers > docs/papers.md`` writes both as a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lyceum.core.paper_folders import ROW, PaperFolder, folders_of_papers
from lyceum.recipe.files import folder_of_recipe, read_merged, recipe_names, recipe_text
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.errors import RecipeError

State = Literal["works", "mechanism only", "part", "planned", "not a method", "off the field"]
After = Literal["", "code", "paper", "reviews", "abstract"]
Shown = Literal["", "mechanism", "gain"]

STATES: dict[State, str] = {
    "works": "a recipe or a command does it, and what it adds acts",
    "mechanism only": "it runs, but what it learns from (a judge, a value model) is near chance as shipped",
    "part": "an essential piece of it is not there",
    "planned": "no recipe yet",
    "not a method": "a survey, a theory, a benchmark: nothing to run",
    "off the field": "no reinforcement learning of how a language model reasons",
}
"""State of a paper -> its meaning."""

DONE: tuple[State, ...] = ("works", "mechanism only", "part")
"""States of papers that recipes or commands follow."""

SOURCES: dict[After, str] = {
    "code": "the authors' code, or a fork of it, beside what could be read of the paper",
    "paper": "the paper",
    "reviews": "the abstract and what others say of the paper: reviews, overviews, notes",
    "abstract": "the abstract alone",
}
"""``Paper.after`` -> the best source that a recipe was made after."""

EVIDENCE: dict[Shown, str] = {
    "mechanism": "its mechanism acts ([mechanism checks](mechanisms.md)); no gain over a run without it is shown",
    "gain": "a gain over plain GRPO beyond the 95 % interval over seeds, on the tasks of the linked table",
}
"""``Paper.shown`` -> what was seen of it here, with the models and tasks of this package."""


class Paper(BaseModel):
    """One paper. Texts are ours, not the authors'.

    Attributes:
        arxiv: its number on arXiv; empty where it was not looked up.
        scope: ``core`` (reasoning of language models), ``adjacent`` or ``off``.
        family: the slot of a recipe, or the part of a run, that the paper changes.
        state: a key of ``STATES``.
        does: what it does, in one line.
        recipes: names of the recipes that do it; under ``part`` those that do a piece.
        commands: commands of lyceum that do it, where it measures and trains nothing.
        note: what these commands do not do as the paper, and why.
        missing: what ``mechanism only``, ``part`` and ``planned`` need that lyceum does not have, or why it is off the
            field; else empty.
        after: a key of ``SOURCES`` where recipes or commands follow it, else empty.
        code: the repository on GitHub that was read, owner/name, or a page; under ``after: code`` alone.
        shown: a key of ``EVIDENCE`` where recipes or commands follow it, else empty.
        table: page of docs/ and heading on it of the table that shows a gain, ``page.md#heading``.
        results: file of benchmarks/results/ with that table's numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str
    title: str
    scope: Literal["core", "adjacent", "off"]
    family: str
    state: State
    does: str = Field(min_length=1, max_length=140)
    arxiv: str = ""
    recipes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    note: str = ""
    missing: str = ""
    after: After = ""
    code: str = ""
    shown: Shown = ""
    table: str = Field(default="", pattern=r"^([a-z-]+\.md#[a-z0-9-]+)?$")
    results: str = Field(default="", pattern=r"^([a-z_]+\.json)?$")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.state not in DONE and self.done_by:
            raise ValueError(f"recipes, commands: none is there in the state {self.state!r}")
        if self.state in ("works", "mechanism only") and not self.done_by:
            raise ValueError(f"recipes, commands: one of them is there in the state {self.state!r}")
        given = {key: bool(getattr(self, key)) for key in ("missing", "after", "code", "shown", "table", "results")}
        followed, gain = bool(self.done_by), self.shown == "gain"
        expected = {
            "missing": self.state in ("mechanism only", "part", "planned", "off the field"),
            **{"after": followed, "shown": followed, "code": self.after == "code", "table": gain, "results": gain},
        }
        for key, wanted in expected.items():
            if given[key] != wanted:
                raise ValueError(
                    f"{key}: got {getattr(self, key)!r}; allowed: {'a text' if wanted else 'nothing'} here"
                )
        return self

    @property
    def differs(self) -> dict[str, str]:
        """Recipe -> what it does not do as its paper, and why."""
        return {name: differs_from_paper(name) for name in self.recipes}

    @property
    def done_by(self) -> list[str]:
        """Recipes and commands that do it, as one types them."""
        return [*self.recipes, *(f"lyceum {command}" for command in self.commands)]


def papers() -> list[Paper]:
    """The rows.

    Raises:
        RecipeError: a row is not whole; it names the row and the key.
    """
    text = (files("lyceum.analysis") / "papers.jsonl").read_text(encoding="utf-8")
    lines = enumerate(text.splitlines(), start=1)
    listed = [read_row(f"papers.jsonl, row {number}", read_json(line)) for number, line in lines]
    rows = ((folder, row_of(folder)) for folder in folders_of_papers())
    return listed + [
        read_row(str(folder.path / ROW), {"recipes": sorted(folder.recipes)} | row)
        for folder, row in rows
        if "id" in row
    ]


def row_of(folder: PaperFolder) -> dict[str, Any]:
    """What a paper's folder says in ``row.json``: the row of a paper on the list, which has an ``id``, or of one that
    is not what its recipes do not say."""
    file = folder.path / ROW
    try:
        row = read_json(file.read_bytes()) if file.is_file() else {}
    except DocumentError as error:
        raise RecipeError(f"papers: {file} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise RecipeError(f"papers: {file} holds {type(row).__name__}; allowed: a mapping of keys")
    return row


def cited(folder: PaperFolder) -> tuple[str, str | None]:
    """A paper's short title and its number on arXiv, by its row or else its recipes; the folder's name and None where
    neither says them."""
    row = row_of(folder)
    said = (str(read_merged(name).get("paper", "")) for name in folder.recipes) if "arxiv" not in row else ()
    number = row.get("arxiv") or next((paper.removeprefix("arXiv:") for paper in said if paper), None)
    return str(row.get("name") or folder.name), number


def read_row(place: str, row: Mapping[str, Any]) -> Paper:
    """A row that is checked; ``place`` names it in messages."""
    try:
        return Paper.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        says = f"{key}: {first['msg']}" if key else first["msg"].removeprefix("Value error, ")
        raise RecipeError(f"{place} ({row.get('id', 'without an id')}): {says}") from None


def origin(recipe: str) -> str:
    """What a recipe was made after, and what of its paper was seen here, in a sentence; empty where it has no paper."""
    listed = papers()
    followed = [paper for paper in [*listed, *followed_besides(listed)] if recipe in paper.recipes and paper.arxiv]
    if not followed:
        return ""
    (paper,) = followed
    read = f"{SOURCES[paper.after]}{f' ({paper.code})' if paper.code else ''}"
    seen = f"a gain (docs/{paper.table})" if paper.shown == "gain" else "that its mechanism acts, and no gain"
    missing = f" {paper.state.capitalize()}; missing: {paper.missing}." if paper.missing else ""
    return f"Made after {read}. Shown: {seen}.{missing}"


def found(text: str, of: Sequence[Paper]) -> list[Paper]:
    """The papers that contain every word of ``text`` in their name, title, line, recipes or what is missing, or are
    called so. Case does not count, and neither does punctuation between letters: ``dr-grpo`` finds ``Dr. GRPO``.

    Those that are called just so come first.
    """
    words = text.casefold().split()
    matches = [paper for paper in of if _is_called(paper, text) or all(word in _searched(paper) for word in words)]
    return sorted(matches, key=lambda paper: not _is_called(paper, text))


def _is_called(paper: Paper, text: str) -> bool:
    return _letters(text) in map(_letters, (paper.name, paper.id, *paper.recipes))


def _letters(text: str) -> str:
    """Its letters and digits alone, in lower case."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _searched(paper: Paper) -> str:
    return " ".join(
        (
            paper.id,
            paper.name,
            paper.title,
            paper.arxiv,
            paper.family,
            paper.does,
            *paper.recipes,
            *paper.commands,
            paper.missing,
        )
    ).casefold()


def differs_from_paper(recipe: str) -> str:
    """The paragraph ``# Not: ...`` of a recipe's comments; empty where it has none."""
    lines = iter(recipe_text(recipe).splitlines())
    first = next((line.removeprefix("# Not:").strip() for line in lines if line.startswith("# Not:")), "")
    return " ".join([first, *_continued(lines)])


def _continued(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#   "):
            return
        yield line.removeprefix("#").strip()


FAMILIES = {
    "objective": "Losses: policy gradients, preferences, distillation",
    "credit": "Advantages and credit",
    "reward": "Rewards and reward models",
    "curriculum": "Curriculum: which tasks are drawn",
    "guidance": "Guidance: help for tasks that the policy fails",
    "rollout": "Rollouts and search",
    "environments": "Environments, tools and games",
    "tasks": "Tasks and data",
    "stages": "Several stages of training",
    "systems": "Long and shared rollouts",
    "evaluate": "Evaluation and analysis",
    "other": "Other",
}
"""``Paper.family`` -> its heading on the page, in the page's order."""


@dataclass(frozen=True)
class Besides:
    """What a row would say of a paper that has none; the rest is in the recipe's file."""

    family: str
    after: After = "paper"
    code: str = ""


BESIDES = {
    "bfs-prover": Besides("stages"),
    "dapo": Besides("objective"),
    "dpo": Besides("objective"),
    "dr-grpo": Besides("objective", "code", "sail-sg/understand-r1-zero"),
    "expert-iteration": Besides("stages"),
    "grpo": Besides("objective"),
    "ipo": Besides("objective"),
    "luffy": Besides("guidance", "code", "ElliottYan/LUFFY"),
    "one-step-off": Besides("systems", "code", "volcengine/verl"),
    "ppo": Besides("objective"),
    "rloo": Besides("objective"),
}
"""Recipe of a paper that has no row -> its family and what it was made after; of one in a folder its row says so."""


def followed_besides(rows: Sequence[Paper]) -> list[Paper]:
    """The papers that recipes follow and that are not among ``rows``, such as that of ``grpo``."""
    numbers = {paper.arxiv for paper in rows}
    return [paper for name in other_recipes(rows) if (paper := _paper_of(name)).arxiv not in {"", *numbers}]


def family_of(recipe: str) -> str | None:
    """The family of the paper that a recipe follows, by what is said of it beside the list; None where nothing is."""
    folder = folder_of_recipe(recipe)
    said = BESIDES[recipe].family if recipe in BESIDES else None if folder is None else row_of(folder).get("family")
    return None if said is None else str(said)


def _paper_of(recipe: str) -> Paper:
    raw = read_merged(recipe)
    title = str(raw["title"])
    # The method's name is given behind the title, or before its colon.
    name = re.search(r" \(([^()]+)\)$", title) or re.match(r"([^:]+):", title)
    said = {
        "id": recipe,
        "name": name[1] if name else title,
        "title": title[: name.start()] if name and name.start() else title,
        "scope": "core",
        "family": "other",
        "state": "works",
        "does": str(raw.get("summary", title)),
        "arxiv": str(raw.get("paper", "")).removeprefix("arXiv:"),
        "recipes": [recipe],
        "after": "paper",
        "shown": "mechanism",
    }
    folder = folder_of_recipe(recipe)
    about = asdict(BESIDES[recipe]) if recipe in BESIDES else {} if folder is None else row_of(folder)
    return read_row(recipe if folder is None else str(folder.path / ROW), said | about)


HEAD = """# Papers

Which papers lyceum reproduces, by which recipe, and where the recipe differs from its paper.

<!-- Made by `python -m lyceum.analysis.papers > docs/papers.md` from papers.jsonl beside it and the recipes. -->

`lyceum papers TEXT` searches this list (`--state`, `--after`, `--shown` select); `lyceum train NAME` runs a recipe;
`lyceum recipes show NAME` prints every setting of it.

Common to all recipes and not repeated below: the small base model instead of the paper's, generated chained arithmetic
([the built-in model and tasks](ladder.md)) instead of its data, 60 steps of 32 tasks with 8 samples of at most 80
tokens at temperature 1, learning rate 1e-4. Unless the recipe says otherwise there is no KL penalty, one update per
step (every ratio is then 1 and the clip has no effect), and the loss is averaged per completion.

"""

TABLE = "| recipe | paper, and what it does | made after | shown | where the recipe differs |\n|---|---|---|---|---|\n"
ON_PAGE: tuple[State, ...] = (*DONE, "planned")


def page() -> str:
    """docs/papers.md."""
    rows = papers()
    besides = followed_besides(rows)
    of_state: dict[str, list[Paper]] = {state: [paper for paper in rows if paper.state == state] for state in STATES}
    text = HEAD + _counts(of_state, besides)
    text += "\n## What works\n"
    for family, heading in FAMILIES.items():
        done = [paper for paper in [*of_state["works"], *besides] if paper.family == family]
        if done:
            text += f"\n### {heading}\n\n{TABLE}" + "".join(map(_row, sorted(done, key=lambda paper: paper.done_by)))
    text += "\n### Without a paper\n\n| recipe | what it does |\n|---|---|\n"
    for name in other_recipes(rows):
        raw = read_merged(name)
        if not raw.get("paper"):
            text += f"| `{name}` | {_cell(str(raw.get('summary', raw['title'])))} |\n"
    text += f"\n## Mechanism only\n\n{TABLE}" + "".join(map(_row, of_state["mechanism only"]))
    text += f"\n## Done in part\n\n{TABLE}" + "".join(map(_row, of_state["part"]))
    text += "\n## Planned\n\n| paper, and what it does | what is missing |\n|---|---|\n"
    order = list(FAMILIES)
    for paper in sorted(of_state["planned"], key=lambda paper: order.index(paper.family)):
        text += f"| {_cited(paper)} | {_cell(_sentence(paper.missing))} |\n"
    return text


def _counts(of_state: dict[str, list[Paper]], besides: Sequence[Paper]) -> str:
    """How many papers there are of each state, on the page and off it, and what is behind those that are done."""
    total = sum(map(len, of_state.values()))
    text = f"Of the {total} papers of the list:\n\n| state | papers | meaning |\n|---|---|---|\n"
    text += "".join(f"| {state} | {len(of_state[state])} | {STATES[state]} |\n" for state in ON_PAGE)
    left_out: list[State] = [state for state in STATES if state not in ON_PAGE]
    text += (
        f"\n{len(besides)} recipes follow papers that are not on the list, such as `grpo`; they are below as well.\n"
    )
    text += "Not on this page:\n\n"
    for state in left_out:
        text += f"- {len(of_state[state])} {state} ({STATES[state]}): `lyceum papers --state '{state}'`\n"
    done = [paper for state in DONE for paper in of_state[state] if paper.done_by]
    text += f"\nOf the {len(done)} papers of the list that recipes or commands follow:\n\n"
    text += "| made after | papers | the best source that was read |\n|---|---|---|\n"
    for after, meaning in SOURCES.items():
        text += f"| {after} | {sum(paper.after == after for paper in done)} | {meaning} |\n"
    text += "\n| shown | papers | what was seen of it here |\n|---|---|---|\n"
    for shown, meaning in EVIDENCE.items():
        text += f"| {shown} | {sum(paper.shown == shown for paper in done)} | {meaning} |\n"
    return text


def other_recipes(rows: Sequence[Paper]) -> list[str]:
    """The recipes that no row of state ``works`` names."""
    named = {name for paper in rows if paper.state == "works" for name in paper.recipes}
    return [name for name in recipe_names() if name not in named]


def _row(paper: Paper) -> str:
    differs = _differences(paper)
    if paper.missing:
        differs = f"{differs} Missing: {paper.missing}.".strip()
    cells = (_names(paper.done_by) or "none", _cited(paper), _after(paper), _shown(paper), _cell(differs))
    return f"| {' | '.join(cells)} |\n"


def _after(paper: Paper) -> str:
    if not paper.code:
        return paper.after
    place = paper.code if "." in paper.code.partition("/")[0] else f"github.com/{paper.code}"
    return f"{paper.after}: [{paper.code}](https://{place})"


def _shown(paper: Paper) -> str:
    return f"[{paper.shown}]({paper.table})" if paper.table else paper.shown


def _differences(paper: Paper) -> str:
    """What its recipes and commands do not do as the paper; what several have in common is said once."""
    recipes: dict[str, list[str]] = {}
    for name, text in paper.differs.items():
        recipes.setdefault(_sentence(text), []).append(name)
    said = [text if len(recipes) == 1 else f"{_names(names)}: {text}" for text, names in recipes.items() if text]
    return " ".join([*said, _sentence(paper.note)]).strip()


def _sentence(text: str) -> str:
    """With a capital, and a full stop at its end."""
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ("", ".") else ".")


def _cited(paper: Paper) -> str:
    own, title = _named(paper.name, paper.title)
    cited = f"**{_cell(own)}**: {_cell(title)}" if own else f"**{_cell(title)}**"
    return f"{cited}{', ' + _link(paper.arxiv) if paper.arxiv else ''}<br>{_cell(paper.does)}"


def _named(name: str, title: str) -> tuple[str, str]:
    """A paper's name and title, without what the other has already: ``CurES: From ...`` is cut after its colon."""
    remark = re.search(r" \(([^()]+)\)$", name)
    if remark and remark[1].casefold() in title.casefold():
        name = name[: remark.start()]
    for part in (name, *re.split(r" / | \(|\)", name)):
        if part and (begin := re.match(rf"{re.escape(part)}\s*:\s*", title, re.IGNORECASE)):
            return name, title[begin.end() :]
    return ("", title) if name.casefold() == title.casefold() else (name, title)


def _link(number: str) -> str:
    return f"[arXiv:{number}](https://arxiv.org/abs/{number})"


def _names(recipes: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in recipes)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    print(page(), end="")
