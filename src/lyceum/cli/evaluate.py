"""``lyceum eval``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.cli.outcome import FAILED, NOTHING_LEARNT, Failure
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
        from lyceum import api
        from lyceum.cli.show import accuracy_table, count, reward_lines, ungraded_lines
        from lyceum.evaluation.measure import Unwritten

        unwritten: list[str] = []
        try:
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
                output=output,
                progress=out.progress,
                **sampling,
            )
        except Unwritten as error:
            found, unwritten = error.accuracy, [f"{output} could not be written: {error.strerror}"]
        metrics = found.to_json()
        if why := found.why_nothing_graded:
            written = [] if output is None else unwritten or [f"written to {output}"]
            raise Failure(NOTHING_LEARNT, [*why, *written], **metrics)
        if unwritten and as_json:
            raise Failure(FAILED, unwritten, **metrics)
        out.json(metrics)
        if as_json:
            return
        out.show("", accuracy_table(metrics), *reward_lines(metrics))
        out.show(
            f"{count(metrics['tokens_sampled'])} tokens sampled in {metrics['seconds']:.1f} s, "
            f"{metrics['completion_tokens_mean']:.1f} per completion"
        )
        if metrics["truncated"]:
            limit = metrics["sampling"]["max_completion_tokens"]
            out.show(f"{100 * metrics['truncated']:.1f} % of samples were truncated at {limit} tokens (--max-tokens)")
        out.show(*ungraded_lines(metrics))
        if unwritten:
            raise Failure(FAILED, unwritten)
        if output is not None:
            out.show(f"written to {output}")


def numbers(text: str, option: str = "--k") -> list[int]:
    """``1,8,64`` as numbers."""
    from lyceum.utils.errors import RecipeError

    try:
        return [int(part) for part in text.replace(" ", "").split(",")]
    except ValueError:
        allowed = "numbers with commas between them, such as 1,8,64"
        raise RecipeError(f"{option}: got {text!r}; allowed: {allowed}") from None
