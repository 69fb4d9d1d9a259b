"""docs/papers.md, made from the recipes: ``python -m lyceum.recipe.papers > docs/papers.md``."""

from __future__ import annotations

from lyceum.recipe.files import read_raw, recipe_names

HEAD = """# Papers

Made from the recipes by `python -m lyceum.recipe.papers > docs/papers.md`. A comment in each recipe's file says what it
does as the paper and what it does not, and why; `lyceum recipes show NAME` prints every setting.

Common to all and not repeated there: the small base model instead of the paper's, generated chained arithmetic
([ladder.md](ladder.md)) instead of its data, 60 steps of 32 tasks with 8 samples of at most 80 tokens at temperature 1,
learning rate 1e-4. Unless the recipe says otherwise there is no KL penalty, one update per step (every ratio is then 1
and the clip has no effect), and the loss is averaged per completion.

| recipe | what it does | paper |
|---|---|---|
"""


def table() -> str:
    rows = []
    for name in recipe_names():
        raw = read_raw(name)
        title, number = raw.get("title", ""), str(raw.get("paper", "")).removeprefix("arXiv:")
        paper = f"{title}, [arXiv:{number}](https://arxiv.org/abs/{number})" if number else ""
        rows.append(f"| `{name}` | {raw.get('summary', title)} | {paper} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(table(), end="")
