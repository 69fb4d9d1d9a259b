"""Numbers of the pages against ``benchmarks/results``: ``figures.py`` says what the comments in the pages mean."""

from pathlib import Path

import figures
import pytest
from figures import Wrong, check_table, check_text, numbers, tables_of, texts_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
COMPLETE = [ROOT / "docs/trees.md", ROOT / "docs/cascades.md"]
"""Pages of which each number has a comment: in tables, and in the sentences between them."""

TABLES = [(page, table) for page in PAGES for table in tables_of(page.read_text(encoding="utf-8"))]
TEXTS = [(page, *each) for page in PAGES for each in texts_of(page.read_text(encoding="utf-8"))]


def of_page(value):
    return value.name if isinstance(value, Path) else str(getattr(value, "line", value)) if value != {} else ""


@pytest.mark.parametrize(
    ("page", "table"),
    [pair for pair in TABLES if pair[1].figures or (pair[0] in COMPLETE and pair[1].has_numbers)],
    ids=of_page,
)
def test_each_number_of_a_table_is_that_of_the_results(page, table):
    check_table(table)


@pytest.mark.parametrize(("page", "given", "text"), [(page, *rest) for page, _, *rest in TEXTS])
def test_each_number_of_a_sentence_is_that_of_the_results(page, given, text):
    check_text(given, text)


@pytest.mark.parametrize("page", COMPLETE, ids=of_page)
def test_no_number_of_a_sentence_is_without_its_results(page):
    assert figures.untold(page.read_text(encoding="utf-8")) == []


def test_every_comment_stands_above_a_table_or_speaks_of_text():
    # Catches one that drifted away from its table, which nothing would compare any more.
    for page in PAGES:
        text = figures.without_blocks(page.read_text(encoding="utf-8"))
        of_page = [table.figures for other, table in TABLES if other == page]
        for found in figures.COMMENT.finditer(text):
            given = figures.parsed(found[1])
            assert given in of_page or figures.phrases(given), f"{page.name}: {found[0]}"


RESULTS = {
    "rows": [{"recipe": "a", "final": {"mean": 0.5, "low": 0.4, "high": 0.6}, "tokens": 12_345, "seeds": [2, 4]}]
}
RESULTS["rows"].append(
    {"recipe": "b", "final": {"mean": 0.25, "low": 0.2, "high": 0.3}, "tokens": 500, "seeds": [1, 2]}
)


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    read = figures.results
    monkeypatch.setattr(figures, "results", lambda file: RESULTS if file == "made-up.json" else read(file))


def page_of(first, second, extra=""):
    return f"""<!-- figures:
file: made-up.json
in: rows
rows: [a, b]
columns: ["[recipe={{}}].final %", "[recipe={{}}].tokens k"]
{extra}
-->

| recipe | final, % | tokens, thousands | about |
|---|---|---|---|
| `a`, 8 tasks | {first} | 12.3 | |
| `b` | 25 [20, 30] | {second} | |
"""


def test_a_table_whose_numbers_are_right_passes():
    [table] = tables_of(page_of("50.0 [40, 60]", "0.5"))
    check_table(table)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("50.1 [40, 60]", "0.5", "shows 50.1 where the file has 50.0"),
        ("50.0 [40, 61]", "0.5", "shows 61 where the file has 60"),
        ("50.0", "0.5", "1 numbers in '50.0' for"),
        ("50.0 [40, 60]", "0.6", "shows 0.6"),
        ("50.0 [40, 60]", "0.5 | 7", "nothing leads to '7'"),
    ],
)
def test_a_wrong_number_of_a_table_is_found(first, second, told):
    [table] = tables_of(page_of(first, second))
    with pytest.raises(Wrong, match=told):
        check_table(table)


def test_a_column_without_a_file_needs_a_reason():
    [table] = tables_of(page_of("50.0 [40, 60]", "0.5 | 7", extra="unchecked: {about: counted by hand}"))
    check_table(table)


def test_a_table_with_numbers_and_no_comment_is_found():
    [table] = tables_of("| a | b |\n|---|---|\n| `c` | 3 |\n")
    assert table.has_numbers
    with pytest.raises(Wrong, match="no comment"):
        check_table(table)
    [table] = tables_of("| a | b |\n|---|---|\n| 5 | `n=3` and [more](page.md#4) |\n")
    assert not table.has_numbers


@pytest.mark.parametrize(
    ("sentence", "path", "right"),
    [
        (
            "ends at 50 %, 25 ahead",
            ["[recipe=a].final.mean %", "[recipe=a].final.mean - [recipe=b].final.mean %"],
            True,
        ),
        (
            "ends at 50 %, 26 ahead",
            ["[recipe=a].final.mean %", "[recipe=a].final.mean - [recipe=b].final.mean %"],
            False,
        ),
        # Differences 1 and 2: their mean 1.5, t_1 = 12.706 times sd 0.7071 / sqrt(2) = 6.353 to each side.
        ("1.5 [-4.9, 7.9] ahead", "[recipe=a].seeds - [recipe=b].seeds", True),
        ("twice as much, 2.0 times", "[recipe=a].final.mean / [recipe=b].final.mean", True),
        ("50 ± 10 %", "[recipe=a].final % ±", True),
        ("25 to 50 %", "[recipe=b].final.mean .. [recipe=a].final.mean %", True),
        ("2, 4 by seed", "[recipe=a].seeds.*", True),
        ("4, 2 by seed", "[recipe=a].seeds.*", False),
    ],
)
def test_a_sentence_is_compared_number_by_number(sentence, path, right):
    given = {"file": "made-up.json", "in": "rows", "text": {sentence: path}}
    if right:
        check_text(given, f"It {sentence}.")
        return
    with pytest.raises(Wrong, match="where the file has"):
        check_text(given, f"It {sentence}.")


def test_a_sentence_that_the_page_no_longer_has_is_found():
    with pytest.raises(Wrong, match="does not say"):
        check_text({"file": "made-up.json", "text": {"it ends at 50 %": "rows.0.final.mean %"}}, "It ends at 51 %.")


def test_a_number_that_no_comment_speaks_of_is_found():
    page = """# A page

<!-- figures:
file: made-up.json
text: {"ends at 50 %": rows.0.final.mean %}
sizes: [of 8 tasks]
-->

It ends at 50 % of 8 tasks, and `n=3` starts at 40 %.
"""
    assert [words.split()[-1] for words in figures.untold(page)] == ["40"]
    with pytest.raises(Wrong, match="does not say 'of 9 tasks'"):
        figures.untold(page.replace("[of 8 tasks]", "[of 9 tasks]"))


def test_numbers_of_a_text():
    assert numbers("+9.5 [+7.5, -11.4] of 4,000, `n=3`, 64, 62 and v2.0.1") == [
        *("+9.5", "+7.5", "-11.4", "4,000", "64", "62")
    ]
