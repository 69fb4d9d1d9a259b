"""The rows of papers are whole and name recipes that exist; docs/papers.md says what they and the recipes say."""

import re
from collections import Counter
from pathlib import Path

import pytest
import typer

from lyceum.cli.app import app
from lyceum.cli.explain import SLOTS
from lyceum.core.component import kinds
from lyceum.recipe.files import read_merged, recipe_names, recipe_text
from lyceum.recipe.papers import (
    FAMILIES,
    FAMILY_OF_RECIPE,
    STATES,
    differs_from_paper,
    followed_besides,
    found,
    other_recipes,
    page,
    papers,
)

ROWS = papers()
PAGE = page()
WORKS, REST = PAGE.split("\n## Done in part\n")


def test_the_page_is_that_of_the_rows_and_the_recipes():
    # Catches a row or recipe that was added or changed without `python -m lyceum.recipe.papers > docs/papers.md`.
    assert (Path(__file__).parents[2] / "docs/papers.md").read_text() == PAGE


def test_every_paper_has_one_row():
    assert len(ROWS) == 271
    assert [id for id, count in Counter(paper.id for paper in ROWS).items() if count > 1] == []
    assert {paper.state for paper in ROWS} == set(STATES)


@pytest.mark.parametrize("paper", ROWS, ids=lambda paper: paper.id)
def test_a_row_says_what_the_paper_does_and_what_is_missing(paper):
    assert 0 < len(paper.does) <= 140
    assert "|" not in paper.does + paper.missing
    assert paper.scope in ("core", "adjacent", "off")
    assert paper.family in FAMILIES
    assert bool(paper.missing) == (paper.state in ("part", "planned", "off the field"))
    assert set(paper.recipes) <= set(recipe_names())
    assert not paper.done_by or paper.state in ("works", "part")


def test_what_a_row_says_is_there_is_there():
    # Names of components and recipes, and settings, stand in backquotes.
    named = {name for paper in ROWS for name in re.findall("`([^`]+)`", paper.missing)}
    every = {kind for slot in SLOTS for kind in kinds(slot)}
    assert "corpus" in named
    assert {name for name in named if "." not in name} <= every | set(recipe_names())
    assert {name.split(".")[0] for name in named if "." in name} <= set(SLOTS)


@pytest.mark.parametrize("paper", [paper for paper in ROWS if paper.state == "works"], ids=lambda paper: paper.id)
def test_a_paper_that_works_has_recipes_that_cite_it_or_commands(paper):
    assert paper.recipes or (paper.commands and paper.arxiv)
    assert set(paper.commands) <= set(typer.main.get_group(app).commands)
    for name in paper.recipes:
        assert read_merged(name)["paper"] == f"arXiv:{paper.arxiv}", name


@pytest.mark.parametrize("name", other_recipes(ROWS))
def test_a_recipe_that_no_row_names_cites_its_paper_or_is_our_own(name):
    raw = read_merged(name)
    assert raw.get("paper") or "# No paper:" in recipe_text(name)
    # Its paper's row would still say that it is planned.
    silent = [paper.id for paper in ROWS if paper.title.casefold() in raw["title"].casefold()]
    assert [id for id in silent if name not in named(id)] == [], f"name {name} in the row of papers.jsonl"


def named(id):
    return next(paper.recipes for paper in ROWS if paper.id == id)


def test_a_recipe_of_a_paper_says_what_it_does_not_do():
    # The comment is what the page prints beside the paper.
    silent = [name for name in recipe_names() if read_merged(name).get("paper") and not differs_from_paper(name)]
    assert silent == []


def test_the_differences_end_where_the_next_comment_begins():
    assert differs_from_paper("deepsearch").endswith("within one run.")
    assert differs_from_paper("demo") == ""


def test_every_word_has_to_be_found_somewhere_in_the_row():
    assert [paper.id for paper in found("TREE policy subtree", ROWS)] == ["treepo"]
    assert [paper.id for paper in found("2508.17445", ROWS)] == ["treepo"]
    assert found("treepo no-such-word", ROWS) == []
    assert found("", ROWS) == ROWS


def test_what_is_named_so_is_found_first():
    assert found("dapo", [*ROWS, *followed_besides(ROWS)])[0].arxiv == "2503.14476"
    assert found("DAPO", [*ROWS, *followed_besides(ROWS)])[0].arxiv == "2503.14476"


def test_every_recipe_of_a_paper_without_a_row_has_a_family():
    besides = followed_besides(ROWS)
    assert {paper.id for paper in besides} == set(FAMILY_OF_RECIPE)
    assert set(FAMILY_OF_RECIPE.values()) <= set(FAMILIES)
    assert not {paper.arxiv for paper in besides} & {"", *(paper.arxiv for paper in ROWS)}


@pytest.mark.parametrize("name", ["grpo", "ppo", "dapo", "dpo", "rloo", "gspo", "luffy"])
def test_the_methods_that_everybody_knows_are_among_what_works(name):
    assert f"\n| `{name}` | " in WORKS


def test_every_recipe_is_on_the_page_once():
    cells = [cell for line in PAGE.splitlines() if line.startswith("| `") for cell in [line.split(" | ")[0]]]
    shown = Counter(name for cell in cells for name in re.findall("`([^`]+)`", cell))
    assert set(recipe_names()) <= set(shown)
    # sft has no paper and does a part of Orca's.
    assert [name for name in recipe_names() if shown[name] > 1] == ["sft"]


def test_papers_that_cannot_be_reproduced_are_counted_and_not_listed():
    left_out = [paper for paper in ROWS if paper.state in ("not a method", "off the field")]
    assert [paper.id for paper in left_out if paper.title in PAGE] == []
    for state in ("not a method", "off the field"):
        assert f"- {sum(paper.state == state for paper in left_out)} {state} " in PAGE
        assert f"`lyceum papers --state '{state}'`" in PAGE


def test_no_name_stands_twice_before_a_title():
    assert "| **CurES**: From Gradient Analysis" in PAGE
    assert "| **SEC**: Self-Evolving Curriculum for LLM Reasoning, " in PAGE
    assert "| **DPO**: Direct Preference Optimization: " in PAGE
    cited = re.findall(r"\| \*\*([^*]+)\*\*: ([^|]+?)(?:, \[arXiv|<br>)", PAGE)
    assert len(cited) > 150
    assert [name for name, title in cited if title.casefold().startswith(f"{name.casefold()}:")] == []


def test_cells_begin_with_a_capital_and_say_nothing_twice():
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    last = [cells[-1] for cells in rows if "<br>" in cells[-2]]
    assert len(last) > 200
    assert [cell for cell in last if cell[:1].islower()] == []
    nsr = next(cells[-1] for cells in rows if cells[0] == "`nsr`, `w-reinforce`")
    assert nsr == "No difference but the model, data and scale (see grpo.yaml)."
    kimi = next(cells[-1] for cells in rows if cells[0].startswith("`kimi-k1-5`"))
    assert kimi.startswith("`kimi-k1-5`: Tau ")
    assert " `partial-rollouts`: The squared loss " in kimi


def test_the_page_counts_the_rows():
    counts = Counter(paper.state for paper in ROWS)
    for state in ("works", "part", "planned"):
        assert f"\n| {state} | {counts[state]} | {STATES[state]} |\n" in PAGE
    assert f"\n{len(followed_besides(ROWS))} recipes follow papers that are not on the list" in PAGE
    planned = REST.split("\n## Planned\n")[1]
    assert planned.count("\n| **") == counts["planned"]
