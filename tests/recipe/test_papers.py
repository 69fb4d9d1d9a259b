"""The rows of papers are whole and name recipes that exist; docs/papers.md says what they and the recipes say."""

from collections import Counter
from pathlib import Path

import pytest
import typer

from lyceum.cli.app import app
from lyceum.recipe.files import read_raw, recipe_names, recipe_text
from lyceum.recipe.papers import STATES, differs_from_paper, found, other_recipes, page, papers

ROWS = papers()


def test_the_page_is_that_of_the_rows_and_the_recipes():
    # Catches a row or recipe that was added or changed without `python -m lyceum.recipe.papers > docs/papers.md`.
    assert (Path(__file__).parents[2] / "docs/papers.md").read_text() == page()


def test_every_paper_has_one_row():
    assert len(ROWS) == 271
    assert [id for id, count in Counter(paper.id for paper in ROWS).items() if count > 1] == []
    assert {paper.state for paper in ROWS} == set(STATES)


@pytest.mark.parametrize("paper", ROWS, ids=lambda paper: paper.id)
def test_a_row_says_what_the_paper_does_and_what_is_missing(paper):
    assert 0 < len(paper.does) <= 140
    assert "|" not in paper.does + paper.missing
    assert paper.scope in ("core", "adjacent", "off")
    assert bool(paper.missing) == (paper.state in ("part", "planned", "off the field"))
    assert set(paper.recipes) <= set(recipe_names())
    assert not paper.done_by or paper.state in ("works", "part")


@pytest.mark.parametrize("paper", [paper for paper in ROWS if paper.state == "works"], ids=lambda paper: paper.id)
def test_a_paper_that_works_has_recipes_that_cite_it_or_commands(paper):
    assert paper.recipes or (paper.commands and paper.arxiv)
    assert set(paper.commands) <= set(typer.main.get_group(app).commands)
    for name in paper.recipes:
        assert read_raw(name)["paper"] == f"arXiv:{paper.arxiv}", name


@pytest.mark.parametrize("name", other_recipes(ROWS))
def test_a_recipe_that_no_row_names_cites_its_paper_or_is_our_own(name):
    raw = read_raw(name)
    assert raw.get("paper") or "# No paper:" in recipe_text(name)
    # Its paper's row would still say that it is planned.
    silent = [paper.id for paper in ROWS if paper.title.casefold() in raw["title"].casefold()]
    assert [id for id in silent if name not in named(id)] == [], f"name {name} in the row of papers.jsonl"


def named(id):
    return next(paper.recipes for paper in ROWS if paper.id == id)


def test_a_recipe_of_a_paper_says_what_it_does_not_do():
    # The comment is what the page prints beside the paper.
    silent = [name for name in recipe_names() if read_raw(name).get("paper") and not differs_from_paper(name)]
    assert silent == []


def test_the_differences_end_where_the_next_comment_begins():
    assert differs_from_paper("deepsearch").endswith("within one run.")
    assert differs_from_paper("demo") == ""


def test_every_word_has_to_be_found_somewhere_in_the_row():
    assert [paper.id for paper in found("TREE policy subtree", ROWS)] == ["treepo"]
    assert [paper.id for paper in found("2508.17445", ROWS)] == ["treepo"]
    assert found("treepo no-such-word", ROWS) == []
    assert found("", ROWS) == ROWS
