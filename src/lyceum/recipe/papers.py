"""docs/papers.md, made from the recipes: ``python -m lyceum.recipe.papers > docs/papers.md``."""

from __future__ import annotations

from lyceum.recipe.files import read_raw, recipe_names

HEAD = """# Papers

Made from the recipes by `python -m lyceum.recipe.papers > docs/papers.md`. Each recipe's file says which parts of the
paper it implements; `lyceum recipes show NAME` prints every setting.

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
