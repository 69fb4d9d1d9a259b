"""The papers of the field: what each does, which recipe follows it, and what is missing for the others.

The rows are in ``papers.jsonl``; how a recipe differs from its paper is in the comments of the recipe's file.
``python -m lyceum.recipe.papers > docs/papers.md`` writes both as a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from lyceum.recipe.files import read_merged, recipe_names, recipe_text
from lyceum.utils.documents import read_json

STATES = {
    "works": "a recipe or a command does it",
    "part": "a part of it is there",
    "planned": "no recipe yet",
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
        missing: what ``part`` and ``planned`` need that lyceum does not have, or why it is off the field; else empty.
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

FAMILY_OF_RECIPE = {
    "absolute-zero": "tasks",
    "bfs-prover": "stages",
    "cispo": "objective",
    "dapo": "objective",
    "dpo": "objective",
    "dr-grpo": "objective",
    "expert-iteration": "stages",
    "gkd": "objective",
    "grpo": "objective",
    "gspo": "objective",
    "ipo": "objective",
    "kto": "objective",
    "luffy": "guidance",
    "orpo": "objective",
    "ppo": "objective",
    "prime": "reward",
    "reinforce-plus-plus": "objective",
    "rloo": "objective",
    "treerl": "rollout",
}
"""Recipe of a paper that has no row -> its family; what else a row would say is in the recipe's file."""


def followed_besides(rows: Sequence[Paper]) -> list[Paper]:
    """The papers that recipes follow and that are not among ``rows``, such as that of ``grpo``."""
    numbers = {paper.arxiv for paper in rows}
    return [paper for name in other_recipes(rows) if (paper := _paper_of(name)).arxiv not in {"", *numbers}]


def _paper_of(recipe: str) -> Paper:
    raw = read_merged(recipe)
    title = str(raw["title"])
    # The method's name is given behind the title, or before its colon.
    name = re.search(r" \(([^()]+)\)$", title) or re.match(r"([^:]+):", title)
    return Paper(
        id=recipe,
        name=name[1] if name else title,
        title=title[: name.start()] if name and name.start() else title,
        scope="core",
        family=FAMILY_OF_RECIPE.get(recipe, "other"),
        state="works",
        does=str(raw.get("summary", title)),
        arxiv=str(raw.get("paper", "")).removeprefix("arXiv:"),
        recipes=(recipe,),
    )


HEAD = """# Papers

Which papers lyceum reproduces, by which recipe, and where the recipe differs from its paper.

<!-- Made by `python -m lyceum.recipe.papers > docs/papers.md` from src/lyceum/recipe/papers.jsonl and the recipes. -->

`lyceum papers TEXT` searches this list; `lyceum train NAME` runs a recipe; `lyceum recipes show NAME` prints every
setting of it.

Common to all recipes and not repeated below: the small base model instead of the paper's, generated chained arithmetic
([the built-in model and tasks](ladder.md)) instead of its data, 60 steps of 32 tasks with 8 samples of at most 80
tokens at temperature 1, learning rate 1e-4. Unless the recipe says otherwise there is no KL penalty, one update per
step (every ratio is then 1 and the clip has no effect), and the loss is averaged per completion.

"""

TABLE = "| recipe | paper, and what it does | where the recipe differs |\n|---|---|---|\n"
ON_PAGE = ("works", "part", "planned")


def page() -> str:
    """docs/papers.md."""
    rows = papers()
    besides = followed_besides(rows)
    of_state = {state: [paper for paper in rows if paper.state == state] for state in STATES}
    text = HEAD + _counts(of_state, len(besides))
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
    text += f"\n## Done in part\n\n{TABLE}" + "".join(map(_row, of_state["part"]))
    text += "\n## Planned\n\n| paper, and what it does | what is missing |\n|---|---|\n"
    order = list(FAMILIES)
    for paper in sorted(of_state["planned"], key=lambda paper: order.index(paper.family)):
        text += f"| {_cited(paper)} | {_cell(_sentence(paper.missing))} |\n"
    return text


def _counts(of_state: dict[str, list[Paper]], besides: int) -> str:
    """How many papers there are of each state, on the page and off it."""
    total = sum(map(len, of_state.values()))
    text = f"Of the {total} papers of the list:\n\n| state | papers | meaning |\n|---|---|---|\n"
    text += "".join(f"| {state} | {len(of_state[state])} | {STATES[state]} |\n" for state in ON_PAGE)
    left_out = [state for state in STATES if state not in ON_PAGE]
    text += f"\n{besides} recipes follow papers that are not on the list, such as `grpo`; they are below as well.\n"
    text += "Not on this page:\n\n"
    for state in left_out:
        text += f"- {len(of_state[state])} {state} ({STATES[state]}): `lyceum papers --state '{state}'`\n"
    return text


def other_recipes(rows: Sequence[Paper]) -> list[str]:
    """The recipes that no row of state ``works`` names."""
    named = {name for paper in rows if paper.state == "works" for name in paper.recipes}
    return [name for name in recipe_names() if name not in named]


def _row(paper: Paper) -> str:
    differs = _differences(paper)
    if paper.missing:
        differs = f"{differs} Missing: {paper.missing}.".strip()
    return f"| {_names(paper.done_by) or 'none'} | {_cited(paper)} | {_cell(differs)} |\n"


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
