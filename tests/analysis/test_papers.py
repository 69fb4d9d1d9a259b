"""The rows of papers are whole and name recipes that exist; docs/papers.md says what they and the recipes say."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import typer

from lyceum.analysis.papers import (
    BESIDES,
    DONE,
    EVIDENCE,
    FAMILIES,
    SOURCES,
    STATES,
    differs_from_paper,
    followed_besides,
    found,
    origin,
    other_recipes,
    page,
    papers,
    read_row,
    row_of,
)
from lyceum.cli.app import app
from lyceum.core.component import kinds
from lyceum.core.paper_folders import SLOTS, shipped
from lyceum.recipe.files import read_merged, recipe_names, recipe_text

ROOT = Path(__file__).parents[2]
ROWS = papers()
FOLLOWED = [paper for paper in [*ROWS, *followed_besides(ROWS)] if paper.recipes and paper.arxiv]
PAGE = page()
WORKS, REST = PAGE.split("\n## Mechanism only\n")


def test_the_page_is_that_of_the_rows_and_the_recipes():
    # Catches a row or recipe that was added or changed without `python -m lyceum.analysis.papers > docs/papers.md`.
    assert (ROOT / "docs/papers.md").read_text() == PAGE


def test_every_paper_has_one_row():
    assert len(ROWS) == 271
    assert [id for id, count in Counter(paper.id for paper in ROWS).items() if count > 1] == []
    assert {paper.state for paper in ROWS} == set(STATES)


@pytest.mark.parametrize("paper", ROWS, ids=lambda paper: paper.id)
def test_a_row_says_what_the_paper_does_and_what_is_missing(paper):
    # What else a row has to have, read_row checks.
    assert "|" not in paper.does + paper.missing
    assert paper.family in FAMILIES
    assert set(paper.recipes) <= set(recipe_names())


DONE_ROW = {"id": "mine", "name": "Mine", "title": "Mine", "scope": "core", "family": "credit", "does": "Something"}
WORKING = {**DONE_ROW, "state": "works", "recipes": ["grpo"], "after": "paper", "shown": "mechanism"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"state": "perfect"}, "state: Input should be 'works', 'mechanism only', 'part'"),
        ({"after": "hearsay"}, "after: Input should be"),
        ({"after": ""}, "after: got ''; allowed: a text here"),
        ({"after": "code"}, "code: got ''; allowed: a text here"),
        ({"code": "owner/name"}, "code: got 'owner/name'; allowed: nothing here"),
        ({"shown": ""}, "shown: got ''; allowed: a text here"),
        ({"shown": "gain"}, "table: got ''; allowed: a text here"),
        ({"table": "choosing.md#x"}, "table: got 'choosing.md#x'; allowed: nothing here"),
        ({"state": "part"}, "missing: got ''; allowed: a text here"),
        ({"state": "mechanism only"}, "missing: got ''; allowed: a text here"),
        ({"missing": "images"}, "missing: got 'images'; allowed: nothing here"),
        ({"recipes": []}, "recipes, commands: one of them is there in the state 'works'"),
        ({"state": "planned", "missing": "all"}, "recipes, commands: none is there in the state 'planned'"),
        ({"stat": "works"}, "stat: Extra inputs are not permitted"),
        ({"does": "x" * 141}, "does: String should have at most 140 characters"),
    ],
)
def test_a_row_that_is_not_whole_is_refused_by_its_name_and_key(changed, says):
    assert read_row("papers.jsonl, row 3", WORKING).recipes == ("grpo",)
    with pytest.raises(ValueError, match=r"^papers\.jsonl, row 3 \(mine\): ") as refused:
        read_row("papers.jsonl, row 3", {**WORKING, **changed})
    assert says in str(refused.value)


def headings(text):
    """Anchors of a page's headings, as GitHub and the site make them."""
    return {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").casefold()).replace(" ", "-") for line in text if line[:1] == "#"
    }


@pytest.mark.parametrize("paper", [paper for paper in ROWS if paper.shown == "gain"], ids=lambda paper: paper.id)
def test_a_gain_is_in_a_table_of_a_page_with_its_results(paper):
    name, heading = paper.table.split("#")
    lines = (ROOT / "docs" / name).read_text().splitlines()
    assert heading in headings(lines)
    begin = next(number for number, line in enumerate(lines) if heading in headings([line]))
    end = next((n for n, line in enumerate(lines) if n > begin and line.startswith("## ")), len(lines))
    section = lines[begin:end]
    assert any(f"| `{paper.recipes[0]}` |" in line for line in section)
    assert f"benchmarks/results/{paper.results}" in "\n".join(lines)
    rows = json.loads((ROOT / "benchmarks/results" / paper.results).read_text())["rows"]
    assert paper.recipes[0] in {row["recipe"] for row in rows}


SAYS_CODE = re.compile(r"\b(code|codes|scripts?)\b")
SAYS_SECOND_HAND = re.compile(r"\b(abstract|overviews?|reviews?|notes)\b")


def comments(name):
    return " ".join(line.lstrip("# ") for line in recipe_text(name).splitlines() if line.startswith("#"))


@pytest.mark.parametrize("paper", FOLLOWED, ids=lambda paper: paper.id)
def test_the_comments_of_recipes_agree_with_what_their_row_says_they_were_made_after(paper):
    # The row is where it is said; the comments may go into it, and may not say the contrary.
    said = " ".join(map(comments, paper.recipes))
    if paper.after == "code":
        assert SAYS_CODE.search(said)
    if paper.after in ("reviews", "abstract"):
        assert SAYS_SECOND_HAND.search(said)
    if paper.after == "paper":
        assert not re.search(r"\bread (alone )?in (its|the|an?) (abstract|review|overview|summar|note)", said)
        as_the_paper = said.split("Not: ")[0]
        assert not re.search(r"^As (the|its) (\w+ )*(code|scripts?)\b|authors' (\w+ )?(code|scripts?)", as_the_paper)


def test_what_a_recipe_was_made_after_is_said_from_its_row():
    assert origin("deepsearch") == (
        "Made after the authors' code, or a fork of it, beside what could be read of the paper (smiles724/DeepSearch). "
        "Shown: that its mechanism acts, and no gain."
    )
    assert "Part; missing: a rate for each tile of a picture" in origin("cascade-pictures")
    assert origin("sec").endswith("Shown: a gain (docs/choosing.md#where-help-matters-and-where-it-does-not).")
    assert origin("calculator") == origin("sft") == origin("mine.yaml") == ""


@pytest.mark.parametrize("paper", FOLLOWED, ids=lambda paper: paper.id)
def test_a_repository_is_an_owner_and_a_name_or_a_page(paper):
    assert re.fullmatch(r"([A-Za-z0-9-]+/[A-Za-z0-9._-]+|[a-z0-9-]+\.github\.io)?", paper.code)


def test_what_a_row_says_is_there_is_there():
    # Names of components and recipes, and settings, stand in backquotes.
    named = {name for paper in ROWS for name in re.findall("`([^`]+)`", paper.missing)}
    every = {kind for slot in SLOTS for kind in kinds(slot)}
    assert "corpus" in named
    assert {name for name in named if "." not in name} <= every | set(recipe_names())
    assert {name.split(".")[0] for name in named if "." in name} <= set(SLOTS)


@pytest.mark.parametrize(
    "paper", [paper for paper in ROWS if paper.state in DONE and paper.arxiv], ids=lambda paper: paper.id
)
def test_a_paper_that_is_done_has_recipes_that_cite_it_or_commands(paper):
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
    in_folders = {name for folder in shipped() if "id" not in row_of(folder) for name in folder.recipes}
    assert {paper.id for paper in besides} == set(BESIDES) | in_folders
    assert {paper.family for paper in besides} <= set(FAMILIES)
    assert not {paper.arxiv for paper in besides} & {"", *(paper.arxiv for paper in ROWS)}


@pytest.mark.parametrize("name", ["grpo", "ppo", "dapo", "dpo", "rloo", "gspo", "luffy"])
def test_the_methods_that_everybody_knows_are_among_what_works(name):
    assert f"\n| `{name}` | " in WORKS


def test_every_recipe_is_on_the_page_once():
    cells = [cell for line in PAGE.splitlines() if line.startswith("| `") for cell in [line.split(" | ")[0]]]
    shown = Counter(name for cell in cells for name in re.findall("`([^`]+)`", cell))
    assert set(recipe_names()) <= set(shown)
    # sft has no paper and does a part of Orca's; areal does a part of AsyncFlow's.
    assert [name for name in recipe_names() if shown[name] > 1] == ["areal", "sft"]


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
    last = [cells[-1] for cells in rows if "<br>" in "".join(cells[:2])]
    assert len(last) > 200
    assert [cell for cell in last if cell[:1].islower()] == []
    nsr = next(cells[-1] for cells in rows if cells[0] == "`nsr`, `w-reinforce`")
    assert nsr == "No difference but the model, data and scale (see grpo.yaml)."
    kimi = next(cells[-1] for cells in rows if cells[0].startswith("`kimi-k1-5`"))
    assert kimi.startswith("`kimi-k1-5`: Tau ")
    assert " `partial-rollouts`: The squared loss " in kimi


def test_the_page_counts_the_rows():
    counts = Counter(paper.state for paper in ROWS)
    done = [paper for paper in ROWS if paper.done_by]
    for name, meanings in (("after", SOURCES), ("shown", EVIDENCE)):
        for value, meaning in meanings.items():
            assert f"\n| {value} | {sum(getattr(paper, name) == value for paper in done)} | {meaning} |\n" in PAGE
    for state in (*DONE, "planned"):
        assert f"\n| {state} | {counts[state]} | {STATES[state]} |\n" in PAGE
    assert f"\n{len(followed_besides(ROWS))} recipes follow papers that are not on the list" in PAGE
    readme = " ".join((ROOT / "README.md").read_text().split())
    by_code = sum(paper.after == "code" for paper in done)
    assert f"of {len(ROWS)} papers says what each recipe was made after ({by_code} of them the authors' code)" in readme
    works, part, only = (counts[state] for state in ("works", "part", "mechanism only"))
    assert f"{works} papers work, {part} are done in part, and in {only} the mechanism runs" in readme
    planned = REST.split("\n## Planned\n")[1]
    assert planned.count("\n| **") == counts["planned"]
