"""``lyceum eval``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.cli.output import printing


def command(
    model: str,
    tasks: str | None,
    keys: Sequence[str],
    sampling: dict[str, Any],
    *,
    k: str,
    n: int,
    samples: int | None,
    reward: str | None,
    greedy: bool,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    with printing(as_json) as out:
        if output is not None:
            refuse_unwritable(output)  # now, and not when everything was measured
        from lyceum import api
        from lyceum.cli.show import accuracy_table, count, reward_lines

        found = api.evaluate(
            model,
            tasks,
            keys,
            k=numbers(k),
            n=n,
            samples=samples,
            reward=reward,
            greedy=greedy,
            seed=seed,
            progress=out.progress,
            **sampling,
        )
        figures = found.to_json()
        if output is not None:
            found.write(output)
        out.json(figures)
        if as_json:
            return
        out.show("", accuracy_table(figures), *reward_lines(figures))
        out.show(
            f"{count(figures['tokens_sampled'])} tokens sampled in {figures['seconds']:.1f} s, "
            f"{figures['completion_tokens_mean']:.1f} a completion"
        )
        if figures["truncated"]:
            limit = figures["sampling"]["max_completion_tokens"]
            out.show(f"{100 * figures['truncated']:.1f} % of the samples were cut at {limit} tokens (--max-tokens)")
        if figures["ungraded"]:
            out.show(f"{figures['ungraded']} samples could not be graded and are left out:")
            out.show(*(f"  {times} x {reason}" for reason, times in figures["reasons_ungraded"].items()))
        if output is not None:
            out.show(f"written to {output}")


def refuse_unwritable(file: Path) -> None:
    """Raise RecipeError for a file that cannot be written, as far as names tell."""
    from lyceum.component import RecipeError

    above = next(folder for folder in file.absolute().parents if folder.exists())
    if file.is_dir() or not above.is_dir():
        raise RecipeError(
            f"--output: got {str(file)!r}, but {file if file.is_dir() else above} is "
            f"{'a folder' if file.is_dir() else 'a file'}; allowed: a file to write"
        )


def numbers(text: str, option: str = "--k") -> list[int]:
    """``1,8,64`` as numbers."""
    from lyceum.component import RecipeError

    try:
        return [int(part) for part in text.replace(" ", "").split(",")]
    except ValueError:
        allowed = "numbers with commas between them, such as 1,8,64"
        raise RecipeError(f"{option}: got {text!r}; allowed: {allowed}") from None
