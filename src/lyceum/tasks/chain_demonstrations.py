"""Noisy worked chains: training data of the small base model from scratch, so that RL has something left to teach.

A model that learns from clean chains is perfect up to the longest it saw. This one learns from chains with more errors
the longer they are, of two kinds that cannot give the correct answer by chance:

- **slips**: a result 10 too large, from which the chain continues consistently. Slips only add, so none cancels another
  (ten would, and no level has ten).
- **stopping early**: the answer comes one operation before the end. An operation is never 0, so it is incorrect.

The error rate of a model trained on this is about that of the data, level by level.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Hint, Task
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.chain import (
    MODULUS,
    chain_text,
    completion_text,
    draw,
    grade_leaves,
    hints_of,
    judge_steps,
    make_task,
    retried,
)

SLIP = 10


class ChainDemonstrations(TasksSettings):
    """Chains with a completion to imitate in ``columns["demonstration"]``, correct or not: for fine-tuning only.

    Tuples have an entry for each level, from level 1 on, or for each kind of help: none, then a knowledge, planning and
    solution hint.
    """

    kind: Literal["chain-demonstrations"] = "chain-demonstrations"
    size: int = Field(102_400, ge=1)
    """Demonstrations in each split."""
    level_share: tuple[float, ...] = (0.18, 0.18, 0.16, 0.13, 0.11, 0.09, 0.08, 0.07)
    """Sampling weight of each level (relative). Short chains most, since every step of a long one is one of them."""
    slip: tuple[float, ...] = (0.0, 0.015, 0.05, 0.09, 0.14, 0.18, 0.18, 0.15)
    """Probability that a step's result is 10 too large, by level."""
    stop: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.5, 0.992)
    """Probability that a chain is answered one operation early, by level; 0 at level 1, which has one step."""
    hint_share: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2, 0.25, 0.3, 0.35, 0.4)
    """Share of prompts with a hint, by level: highest at long levels, where guidance hints and practice is rare."""
    tier_share: tuple[float, float, float] = (0.2, 0.3, 0.5)
    """Shares of knowledge, planning and solution hints among the hinted prompts."""
    slip_kept: tuple[float, float, float, float] = (1.0, 0.8, 0.6, 0.5)
    """Factor on the slip probability under each kind of help; results that a solution hint gives never slip."""
    stop_kept: tuple[float, float, float, float] = (1.0, 0.95, 0.3, 0.15)
    """Factor on the probability of stopping early under each kind of help."""
    corrected: float = Field(0.2, ge=0, le=1)
    """Share of slips corrected at once (``55!45``), so that a model that notices its slip knows how to correct it."""
    retry_share: float = Field(0.06, ge=0, le=1)
    """Share of prompts that continue after an incorrect attempt and a critique; their completion is correct. It makes
    the format of a later critique-and-retry rollout known. From level 2 on."""

    @model_validator(mode="after")
    def _levels_agree(self) -> ChainDemonstrations:
        if not 1 <= len(self.level_share) <= MODULUS // SLIP - 1:
            raise ValueError(f"level_share: got {len(self.level_share)} levels; allowed: 1 to {MODULUS // SLIP - 1}")
        for name in ("slip", "stop", "hint_share"):
            values = getattr(self, name)
            if len(values) != len(self.level_share):
                raise ValueError(f"{name}: got {len(values)} levels; allowed: {len(self.level_share)}, as level_share")
            if not all(0 <= value <= 1 for value in values):
                raise ValueError(f"{name}: got {list(values)}; allowed: probabilities")
        if self.stop[0] > 0:
            raise ValueError(f"stop: got {self.stop[0]} at level 1; allowed: 0, there is no earlier result to answer")
        return self

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainDemonstrationSource:
        return ChainDemonstrationSource(self, split, seed)


class ChainDemonstrationSource(GeneratedSource[ChainDemonstrations]):
    """``source[i]`` depends on (seed, split, i) alone; its chains have the same splits as kind ``chain``."""

    def __getitem__(self, index: int) -> Task:
        of, id = self.settings, self.key(index)
        rng = random.Random(id)
        level = rng.choices(range(1, len(of.level_share) + 1), of.level_share)[0]
        start, operations = draw(rng, level, heldout=self.split == "heldout")
        task = make_task(id, start, operations)
        if level > 1 and rng.random() < of.retry_share:
            return self._after_a_wrong_attempt(task, rng)
        help, given, text = 0, 0, ""
        if rng.random() < of.hint_share[level - 1]:
            help = rng.choices((1, 2, 3), of.tier_share)[0]
            tier = ("knowledge", "planning", "solution")[help - 1]
            hint = Hint(**rng.choice([hint for hint in hints_of(task.columns["steps"]) if hint["tier"] == tier]))
            text = hint.text
            given = text.count(",") + 1 if tier == "solution" else 0
            task = task.with_messages([{"role": "user", "content": chain_text(start, operations, text)}], hint=hint)
        written = write(
            rng,
            start,
            operations,
            slip=of.slip[level - 1] * of.slip_kept[help],
            stop=of.stop[level - 1] * of.stop_kept[help],
            corrected=of.corrected,
            given=given,
        )
        return replace(task, columns={**task.columns, "demonstration": written})

    def _after_a_wrong_attempt(self, task: Task, rng: random.Random) -> Task:
        """Incorrect attempt and critique in the prompt (half of them name the step), and a correct demonstration."""
        start, operations = task.columns["start"], task.columns["operations"]
        level = len(operations)
        stop = level > 5 and rng.random() < 0.5
        attempt = write(rng, start, operations, slip=0.0 if stop else 0.2, stop=float(stop), corrected=0.0)
        if not stop and attempt == task.columns["demonstration"]:
            attempt = write(rng, start, operations, slip=1.0, stop=0.0, corrected=0.0, given=rng.randrange(level))
        first_wrong = 1 + next(i for i, (_, good) in enumerate(judge_steps(task, attempt)) if not good)
        return retried(task, attempt, first_wrong if rng.random() < 0.5 else None)

    def grader(self) -> Grader:
        return grade_leaves


def write(
    rng: random.Random,
    start: int,
    operations: list[int],
    *,
    slip: float,
    stop: float,
    corrected: float,
    given: int = 0,
) -> str:
    """A worked chain with the noise of the data.

    Args:
        slip: probability that a step's result is 10 too large, and the chain continues from there.
        stop: probability that the answer comes one operation early.
        corrected: share of slips that are corrected at once.
        given: number of first results that are known, and never slip.
    """
    done = operations[:-1] if rng.random() < stop else operations
    value, results = start, list[int | str]()
    for i, operand in enumerate(done):
        right = (value + operand) % MODULUS
        value, shown = right, str(right)
        if i >= given and rng.random() < slip:
            wrong = (right + SLIP) % MODULUS
            if rng.random() < corrected:
                shown = f"{wrong}!{right}"
            else:
                value, shown = wrong, str(wrong)
        results.append(shown)
    return completion_text(start, operations, results)
