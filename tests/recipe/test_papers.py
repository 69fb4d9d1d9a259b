"""docs/papers.md says what the recipes say."""

from pathlib import Path

from lyceum.recipe.papers import table


def test_the_table_of_papers_is_that_of_the_recipes():
    # Catches a recipe that was added or renamed without `python -m lyceum.recipe.papers > docs/papers.md`.
    assert (Path(__file__).parents[2] / "docs/papers.md").read_text() == table()
