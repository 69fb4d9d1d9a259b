"""The suites ``sparse`` and ``plain`` of benchmarks/curriculum.py: curricula where most tasks teach nothing.

Twelve kinds of chains, each an operation of its own, written as a letter: ``37G8G5G2=`` is answered
``37G8=45G5=50G2=52#52``. The small base model is fine-tuned on demonstrations whose results are wrong at a rate, and by
an amount, that each kind has for itself: six kinds are solved (level 1), two now and then (level 2), four never (level
3). What is learnt of one level carries over to no other; the two kinds of level 2 teach each other (``carry_over``).

The learning rate is one at which ``oracle`` is far ahead of ``grpo``; at a larger one, of which one seed of 14 arms had
been seen, there is little to gain.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, say, table
from suites import Suite

HERE = CACHE / "curriculum" / "sparse-start"
MODULUS, LARGEST, LENGTH = 100, 9, 3


@dataclass(frozen=True)
class Kind:
    """An operation: ``sign`` times the operand is added, and in a wrong result also ``slip``.

    Up to three slips never add up to 0 modulo 100: a wrong chain has no correct answer.
    """

    letter: str
    level: int
    sign: int
    slip: int
    right: float
    """Probability that a demonstrated result is correct, before the model is trained on these tasks."""


KINDS = (
    *(Kind(letter, 1, sign, 10, 1.0) for letter, sign in zip("ABCDEF", (1, -1) * 3, strict=True)),
    Kind("G", 2, 1, 20, 0.75),
    Kind("H", 2, -1, 30, 0.5),
    Kind("J", 3, 1, 11, 0.02),
    Kind("K", 3, -1, 7, 0.02),
    Kind("L", 3, 1, 13, 0.02),
    Kind("M", 3, -1, 9, 0.02),
)

DEMONSTRATIONS = 32_000
SHOWN = {1: 2, 2: 1, 3: 1}
"""How often a kind is demonstrated, by its level, relative to the others: what is to be solved, most."""
TRAINED_ON = 24
"""Tasks of each kind in training: 288, of which 48 can be learnt from."""
HELDOUT = {1: 6, 2: 48, 3: 9}
"""Held-out tasks of each kind, by its level: most where something is to be seen."""


HELDOUT_TASKS = sum(HELDOUT[kind.level] for kind in KINDS)


def chain(rng: random.Random, kind: Kind) -> tuple[int, list[int]]:
    return rng.randrange(MODULUS), [rng.randint(1, LARGEST) for _ in range(LENGTH)]


def row(rng: random.Random, kind: Kind, start: int, operands: Sequence[int]) -> dict[str, Any]:
    """A task with its answer, and a demonstration with the kind's errors."""
    answer = (start + kind.sign * sum(operands)) % MODULUS
    value, written = start, f"{start}"
    for operand in operands:
        slip = 0 if rng.random() < kind.right else kind.slip
        value = (value + kind.sign * operand + slip) % MODULUS
        written += f"{kind.letter}{operand}={value}"
    prompt = f"{start}{''.join(f'{kind.letter}{operand}' for operand in operands)}="
    return {
        "prompt": prompt,
        "answer": str(answer),
        "level": kind.level,
        "kind": kind.letter,
        "demonstration": f"{written}#{value}",
    }


def write_data() -> None:
    """Files of demonstrations, of tasks to train on and of held-out tasks; no problem is in two of them."""
    rng = random.Random("sparse")
    seen: set[str] = set()
    heldout, train, demonstrations = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for rows, count in ((heldout, HELDOUT), (train, dict.fromkeys(HELDOUT, TRAINED_ON))):
        for kind in KINDS:
            while sum(each["kind"] == kind.letter for each in rows) < count[kind.level]:
                made = row(rng, kind, *chain(rng, kind))
                if made["prompt"] not in seen:
                    seen.add(made["prompt"])
                    rows.append(made)
    while len(demonstrations) < DEMONSTRATIONS:
        [kind] = rng.choices(KINDS, [SHOWN[kind.level] for kind in KINDS])
        made = row(rng, kind, *chain(rng, kind))
        if made["prompt"] not in seen:
            demonstrations.append(made)
    HERE.mkdir(parents=True, exist_ok=True)
    for name, rows in (("demonstrations", demonstrations), ("train", train), ("heldout", heldout)):
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")


def tasks(train: str = "train.jsonl", level: str = "level") -> str:
    """The tasks as a setting; ``level`` names the column that held-out accuracy is shown by."""
    return json.dumps(
        {
            "kind": "dataset",
            "path": str(HERE / train),
            "heldout_path": str(HERE / "heldout.jsonl"),
            "columns": {"level": level},
            "verifier": {"kind": "exact", "extract": {"after": "#"}},
        }
    )


def start(args: Any) -> Path:
    """The model that all arms begin with: the base, fine-tuned on the demonstrations once."""
    from lyceum.api import train

    folder = HERE / "model-run"
    if not (folder / "model" / "model.safetensors").exists():
        say("training the start of sparse")
        shutil.rmtree(folder, ignore_errors=True)
        write_data()
        of = tasks("demonstrations.jsonl", "kind")
        train(
            "cliff-start", [f"tasks={of}", f"evaluate.tasks={of}", "evaluate.n=0"],
            output=str(HERE), name="model-run", model=args.base, **{"stages.0.steps": args.start_steps},
        )  # fmt: skip
    return folder / "model"


def carry_over(args: Any, letters: Sequence[str]) -> dict[str, dict[str, float]]:
    """Held-out accuracy of every kind, before and after training on some kinds alone."""
    from lyceum.api import train

    name = f"only-{''.join(letters)}"
    folder = HERE / name
    if not (folder / "model" / "model.safetensors").exists():
        shutil.rmtree(folder, ignore_errors=True)
        train(
            "grpo",
            [f"tasks={tasks(level='kind')}", f"curriculum={{kind: subset, by: kind, only: [{', '.join(letters)}]}}"],
            output=str(HERE), name=name, model=str(start(args)), tasks_per_step=TASKS_PER_STEP, steps=20,
            **{"learner.lr": args.sparse_lr, "evaluate.every": 0, "evaluate.n": HELDOUT_TASKS, "evaluate.samples": 4},
        )  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    return {
        when: {kind: round(of["mean"], 4) for kind, of in summary[when]["by_level"].items()}
        for when in ("before", "after")
    }


# Arms -----------------------------------------------------------------------------------------------------------------

TASKS_PER_STEP = 16
SIZE = TRAINED_ON * len(KINDS)
SHARES = {level: sum(kind.level == level for kind in KINDS) / len(KINDS) for level in HELDOUT}
"""Of the tasks in training, by level."""
EVALUATION = (
    "evaluate.samples=4",
    "evaluate.k=[1,4]",
    "evaluate.greedy=false",
    "evaluate.every=8",
)

Arm = tuple[str, str, tuple[str, ...]]

UNKNOWN: tuple[Arm, ...] = (
    ("posterior", "grpo", ("curriculum={kind: posterior, pool: 128, tests: 4, picks: 320}",)),
    ("prompt-value", "grpo", ("curriculum={kind: prompt-value, pool: 4, lr: 1.0e-3}",)),
    ("hard-filter", "grpo", ("curriculum={kind: hard-filter, pool: 128, least: 32, hard: 0.25}",)),
    ("angles", "grpo", (f"curriculum={{kind: angles, pool: {SIZE}, width: 9, shift: 6, most_shift: 12}}",)),
    (
        "good-prefixes",
        "grpo",
        (
            'curriculum={kind: good-prefixes, pool: 128, tests: 5, step: {by: marker, markers: ["="], tokens: 16}}',
            "guidance=[{kind: prefix}]",
        ),
    ),
    ("resorted-own", "grpo", ("curriculum={kind: resorted, by: null, window: 160, tests: 4}",)),
    ("knapsack-own", "grpo", ("curriculum={kind: knapsack, by: null}",)),
    ("difficulty-weight", "grpo", ("curriculum={kind: difficulty-weight, shape: medium}",)),
    ("dynamic-sampling", "grpo", ("collect={keep: partly-solved, max_waves: 16}",)),
    ("dynamic-sampling-4", "grpo", ("collect={keep: partly-solved, max_waves: 16}", "tasks_per_step=4")),
)
"""What needs nothing but the tasks; all with GRPO's own loss and settings, so that only the draws differ."""


def by_category(by: str) -> tuple[Arm, ...]:
    """What needs categories, but not how hard they are."""
    return (
        ("sec", "grpo", (f"curriculum={{kind: self-evolving, by: {by}, learning_rate: 0.5, temperature: 0.3}}",)),
        ("dump", "grpo", (f"curriculum={{kind: dump, by: {by}, window: 300, temperature: 0.1}}",)),
        ("tiers-unknown", "grpo", (f"curriculum={{kind: tiers, by: {by}, offline: unknown}}",)),
        ("knapsack", "grpo", (f"curriculum={{kind: knapsack, by: {by}}}",)),
    )


def by_difficulty(stages: Sequence[Sequence[int]]) -> tuple[Arm, ...]:
    """What needs a level that says how hard a task is."""
    return (
        ("easy-to-hard", "easy-to-hard", tuple(f"stages.{i}.curriculum.only={[*of]}" for i, of in enumerate(stages))),
        ("tiers", "grpo", ("curriculum={kind: tiers, by: level, offline: ranked}",)),
        ("resorted", "grpo", ("curriculum={kind: resorted, by: level, window: 160, tests: 4}",)),
    )


KNOWN = {"grpo": "nothing", "oracle": "which tasks can be learnt"}
KNOWN |= {label: "difficulty" for label, _, _ in by_difficulty([])}
KNOWN |= {label: "categories" for label, _, _ in by_category("kind")}
KNOWN |= {label: "nothing" for label, _, _ in UNKNOWN}

GRPO: Arm = ("grpo", "grpo", ())
SPARSE: tuple[Arm, ...] = (
    GRPO,
    ("oracle", "grpo", ("curriculum={kind: subset, by: level, only: [2]}",)),
    *by_difficulty([[1], [1, 2], [2, 3]]),
    *by_category("kind"),
    *UNKNOWN,
)
PLAIN: tuple[Arm, ...] = (
    GRPO,
    *by_difficulty([[1, 2, 3], [3, 4, 5, 6], [5, 6, 7, 8]]),
    *by_category("level"),
    *UNKNOWN,
)


def suites(args: Any) -> list[Suite]:
    quick = args.quick
    tokens = 10_000 if quick else args.sparse_tokens
    shared = (f"tasks_per_step={TASKS_PER_STEP}", f"learner.lr={args.sparse_lr}")
    return [
        Suite(
            "sparse",
            "twelve kinds of chains, half of them solved, a third out of reach, a sixth to learn",
            tokens,
            1 if quick else 5,
            (f"model={HERE / 'model-run' / 'model'}", f"tasks={tasks()}", *shared),
            SPARSE[:4] if quick else SPARSE,
            (f"evaluate.n={HELDOUT_TASKS}", *EVALUATION),
        ),
        Suite(
            "plain",
            "what the same arms cost on the plain ladder: chains of 1 to 8 operations, as many tasks",
            tokens,
            1 if quick else 3,
            (f"model={args.base}", f"tasks={{kind: chain, size: {SIZE}}}", *shared),
            PLAIN[:3] if quick else PLAIN,
            ("evaluate.n=160", *EVALUATION),
        ),
    ]


def add_mix(rows: Sequence[dict[str, Any]]) -> None:
    """Add what each arm comes to on tasks mixed as in training, which the held-out ones are not."""
    from lyceum.evaluation.intervals import mean_over_seeds

    def mixed(row: Mapping[str, Any]) -> dict[str, float]:
        return {
            seed: sum(SHARES[int(level)] * value for level, value in of["by_level"].items())
            for seed, of in row["by_seed"].items()
        }

    first = mixed(rows[0])
    for row in rows:
        of = mixed(row)
        found = mean_over_seeds([of[seed] - first[seed] for seed in of]) if len(of) > 1 else None
        difference = None if found is None else {"mean": found.mean, "low": found.low, "high": found.high}
        row["mix"] = {"final": fmean(of.values()), "difference": difference}


def show_learnable(rows: Sequence[Mapping[str, Any]]) -> None:
    def points(of: Mapping[str, float]) -> str:
        return f"{100 * of['mean']:+.1f} [{100 * of['low']:+.1f}, {100 * of['high']:+.1f}]"

    table(
        "sparse: the sixth that can be learnt (level 2)",
        ["arm", "knows", "level 2", "minus grpo [95 %]", "mix", "with gradient", "seconds"],
        [
            [
                row["recipe"], row["knows"], f"{100 * row['final']['by_level']['2']['mean']:.1f}",
                points(row["difference"]["by_level"]["2"]) if row["difference"] else "",
                f"{100 * row['mix']['final']:.1f}",
                f"{100 * fmean(row['groups/with_gradient']):.0f} %", row["seconds"],
            ]
            for row in rows
        ],
    )  # fmt: skip
