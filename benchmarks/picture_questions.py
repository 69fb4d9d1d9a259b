"""The part of ``pictures.py`` that asks what there is to reinforce: GRPO on each question alone, from one base.

Eight samples of a model that guesses hold the answer often too. So each question's pass@8 stands beside that of the
same model under blank pictures, before training and after. One seed; a (question, rate) in the file is not made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import picture_arms
from arms import told
from common import say, table

ASKS = ("where", "count", "colour", "compare", "chart", "path", "sum")
"""All but lists, which the base does not know."""
RATES = ("3e-4",)
STEPS, WARMUP = 120, 2
QUESTIONS = 240
DEFINITIONS = {
    "steps": "of GRPO, about: its tokens are those of so many steps of 32 questions, 8 samples each, of the mean "
    "length of demonstrations; 2 of them warm-up, all else as in the arms, at the learning rate 'rate'",
    "before, after": "the base and the trained model on the same held-out questions of all levels",
    "greedy": "greedy answers that are correct under the task's own picture, and the 95 % Wilson interval",
    "pass_1, pass_8": "samples at temperature 1 that are correct; questions of which one of 8 samples is correct",
    "blank, swapped": "the same under a blank picture; greedy answers under another task's",
    "with_gradient": "groups with non-zero advantage, mean over the steps",
}


def run_questions(
    known: Sequence[Mapping[str, Any]],
    asks: Sequence[str],
    rates: Sequence[str],
    steps: int,
    questions: int,
    base: Path,
    folder: Path,
    run_of: Callable[[Any], Any],
    done: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Train and evaluate what is missing.

    Args:
        known: rows that are there; of other steps or numbers of questions they are made again.
        base: the model that is trained, of seed 0.
        run_of: a recipe's run, which is trained where it is not there yet.
        done: takes all rows, after each.
    """
    rows = [dict(row) for row in known if (row["steps"], row["questions"]) == (steps, questions)]
    for rate, ask in itertools.product(rates, asks):
        of_ask = [row for row in rows if row["ask"] == ask]
        if any(row["rate"] == rate for row in of_ask):
            continue
        tasks = {"kind": "pictures", "asks": [ask]}
        length = picture_arms.demonstrated_tokens(0, tasks)
        tokens = round(steps * picture_arms.TASKS_PER_STEP * picture_arms.SAMPLES * length)
        grpo = picture_arms.Arm("grpo", {"online": 1}, {"online": {"learner": {"warmup_steps": WARMUP}}})
        made = picture_arms.recipe(grpo, rate, 0, tokens, base, folder, f"{ask}-{rate}-{steps}", tasks)
        of = told(run_of(made), picture_arms.LOGGED)
        row = {
            **{"ask": ask, "rate": rate, "steps": steps, "questions": questions},
            **{name: of[name] for name in ("tokens_sampled", "seconds")},
            "with_gradient": of["acted"]["groups/with_gradient"],
            "before": of_ask[0]["before"] if of_ask else answered(base, tasks, questions),
            "after": answered(folder / made.name / "model", tasks, questions),
        }
        rows.append(row)
        say(f"{ask} at {rate}: {row['before']['greedy']['mean']:.1%}, then {row['after']['greedy']['mean']:.1%}")
        done(rows)


def answered(model: Path, tasks: Mapping[str, Any], questions: int) -> dict[str, Any]:
    """A model's answers, greedy ones and eight samples, with its picture and without."""
    from lyceum.models.load import ModelSettings, load_policy

    policy = load_policy(ModelSettings(path=str(model), device="cpu"))
    found: dict[str, Any] = {}
    for shown in ("own", "blank", "swapped"):
        asked = picture_arms.questions_of(0, questions, shown=shown, tasks=tasks)
        of: dict[str, Any] = {"greedy": picture_arms.share(picture_arms.correct(policy, asked))}
        if shown != "swapped":
            repeated = [task for task in asked for _ in range(picture_arms.SAMPLES)]
            of |= passed(picture_arms.correct(policy, repeated, temperature=1.0))
        found |= of if shown == "own" else {shown: of}
    return found


def passed(right: Sequence[bool]) -> dict[str, float]:
    """pass@1 and pass@8 of samples that stand question by question."""
    groups = [right[first : first + picture_arms.SAMPLES] for first in range(0, len(right), picture_arms.SAMPLES)]
    return {"pass_1": round(fmean(right), 4), "pass_8": round(fmean(any(group) for group in groups), 4)}


def show_questions(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = (
        "question",
        "rate",
        "greedy",
        "pass@1",
        "pass@8",
        "blank pass@8",
        "then greedy",
        "pass@8",
        "blank",
        "swapped",
    )
    lines = [
        tuple(
            of if isinstance(of, str) else f"{100 * of:.1f}"
            for of in (
                *(row["ask"], row["rate"]),
                *(before["greedy"]["mean"], before["pass_1"], before["pass_8"], before["blank"]["pass_8"]),
                *(after["greedy"]["mean"], after["pass_8"]),
                *(after[shown]["greedy"]["mean"] for shown in ("blank", "swapped")),
            )
        )
        for row in rows
        for before, after in [(row["before"], row["after"])]
    ]
    table("GRPO on each question alone, in %", columns, lines)
