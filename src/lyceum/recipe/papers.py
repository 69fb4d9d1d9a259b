"""The papers of the field: what each does, which recipe follows it, and what the others wait for.

The rows are in ``papers.jsonl``; how a recipe differs from its paper is in the comments of the recipe's file.
``python -m lyceum.recipe.papers > docs/papers.md`` writes both as a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from lyceum.recipe.files import read_raw, recipe_names, recipe_text
from lyceum.utils.documents import read_json

STATES = {
    "works": "a recipe does it",
    "part": "a piece of it is there",
    "planned": "nothing of it is there yet",
    "not a method": "a survey, a theory, a benchmark: nothing to run",
    "off the field": "no reinforcement learning of how a language model reasons",
}
"""State of a paper -> its meaning."""


@dataclass(frozen=True)
class Paper:
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
        missing: what ``part`` and ``planned`` wait for, or why it is off the field; empty otherwise.
    """

    id: str
    name: str
    title: str
    scope: str
    family: str
    state: str
    does: str
    arxiv: str = ""
    recipes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    note: str = ""
    missing: str = ""

    @property
    def differs(self) -> dict[str, str]:
        """Recipe -> what it does not do as its paper, and why."""
        return {name: differs_from_paper(name) for name in self.recipes}

    @property
    def done_by(self) -> list[str]:
        """Recipes and commands that do it, as one types them."""
        return [*self.recipes, *(f"lyceum {command}" for command in self.commands)]


def papers() -> list[Paper]:
    text = (files("lyceum.recipe") / "papers.jsonl").read_text(encoding="utf-8")
    rows = [read_json(line) for line in text.splitlines()]
    named = ("recipes", "commands")
    return [Paper(**{**row, **{name: tuple(row.get(name, ())) for name in named}}) for row in rows]


def found(text: str, of: Sequence[Paper]) -> list[Paper]:
    """The papers that contain every word of ``text`` in their name, title, line, recipes or what they wait for, or are
    called so. Case does not count, and neither does punctuation between letters: ``dr-grpo`` finds ``Dr. GRPO``."""
    words, whole = text.casefold().split(), _letters(text)
    return [
        paper
        for paper in of
        if all(word in _searched(paper) for word in words) or whole in map(_letters, (paper.name, *paper.recipes))
    ]


def recipe_called(text: str, rows: Sequence[Paper]) -> str | None:
    """The recipe of that name, written in any way, whose paper has no row; None where there is none."""
    return next((name for name in other_recipes(rows) if _letters(name) == _letters(text)), None)


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


HEAD = """# Papers

Made by `python -m lyceum.recipe.papers > docs/papers.md` from `src/lyceum/recipe/papers.jsonl` and the recipes.
`lyceum papers TEXT` searches it; `lyceum recipes show NAME` prints every setting of a recipe.

Common to all recipes and not repeated there: the small base model instead of the paper's, generated chained arithmetic
([ladder.md](ladder.md)) instead of its data, 60 steps of 32 tasks with 8 samples of at most 80 tokens at temperature 1,
learning rate 1e-4. Unless the recipe says otherwise there is no KL penalty, one update per step (every ratio is then 1
and the clip has no effect), and the loss is averaged per completion.

"""


def page() -> str:
    """docs/papers.md."""
    rows = papers()
    of_state = {state: [paper for paper in rows if paper.state == state] for state in STATES}
    counts = "".join(f"| {state} | {len(of_state[state])} | {about} |\n" for state, about in STATES.items())
    text = f"{HEAD}| state | papers | |\n|---|---|---|\n{counts}"
    text += "\n## Works\n\n| paper | what it does | recipe | where the recipe differs |\n|---|---|---|---|\n"
    for paper in of_state["works"]:
        differs = " ".join([*paper.differs.values(), paper.note])
        text += f"| {_cited(paper)} | {paper.does} | {_names(paper.done_by)} | {_cell(differs.strip())} |\n"
    text += "\n## Other recipes: of papers done in part, of papers that have no row here, and our own\n\n"
    text += "| recipe | what it does | paper | where it differs |\n|---|---|---|---|\n"
    for name in other_recipes(rows):
        raw = read_raw(name)
        title, number = raw["title"], str(raw.get("paper", "")).removeprefix("arXiv:")
        cited = f"{title}, {_link(number)}" if number else "our own"
        differs = differs_from_paper(name)
        text += f"| `{name}` | {raw.get('summary', title)} | {cited} | {_cell(differs)} |\n"
    for state in ("part", "planned"):
        text += f"\n## {state.capitalize()}\n\n| paper | what it does | what is missing, and what is there |\n"
        text += "|---|---|---|\n"
        for paper in of_state[state]:
            there = f"{_names(paper.recipes)} does a piece. Missing: " if paper.recipes else ""
            text += f"| {_cited(paper)} | {paper.does} | {there}{paper.missing} |\n"
    for state in ("not a method", "off the field"):
        text += f"\n## {state.capitalize()}\n\n| paper | what it is about |\n|---|---|\n"
        text += "".join(f"| {_cited(paper)} | {paper.does} |\n" for paper in of_state[state])
    return text


def other_recipes(rows: Sequence[Paper]) -> list[str]:
    """The recipes that no row of state ``works`` names."""
    named = {name for paper in rows if paper.state == "works" for name in paper.recipes}
    return [name for name in recipe_names() if name not in named]


def _cited(paper: Paper) -> str:
    own = "" if paper.name == paper.title else f"**{paper.name}**: "
    return f"{own}{_cell(paper.title)}{', ' + _link(paper.arxiv) if paper.arxiv else ''}"


def _link(number: str) -> str:
    return f"[arXiv:{number}](https://arxiv.org/abs/{number})"


def _names(recipes: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in recipes)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    print(page(), end="")
