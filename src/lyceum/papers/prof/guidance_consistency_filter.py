"""PROF: of many samples of a task, those whose process rewards agree with their outcome, in balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, graded, notes_of
from lyceum.utils.numbers import mean


class ConsistencyFilter(GuidanceSettings):
    """Samples more than are trained on, and keeps the consistent ones; process rewards choose, and reward nothing.

    Source: PROF, arXiv:2509.03403, and its released code (prof_grpo_both/prof_ray_trainer.py, filter_trajectories).
    """

    requires: ClassVar = ("samples",)

    kind: Literal["consistency-filter"] = "consistency-filter"
    samples: int = Field(default=8, ge=2)
    """Samples per task."""
    keep: int = Field(default=4, ge=1)
    """Samples that are kept, fewer than ``samples``."""
    by: str | None = None
    """The reward part that says how good a trajectory's steps are on average, as it is logged after ``reward/part/``
    (``model/process``); null: the mean of the steps that the graders judge."""
    filter: Literal["both", "correct"] = "both"
    """Whether wrong samples are chosen by consistency too, or at random (by their order), as in the paper's variant
    for models whose steps are unlike what the process model knows."""

    @model_validator(mode="after")
    def _something_to_drop(self) -> ConsistencyFilter:
        if self.keep >= self.samples:
            raise ValueError(f"keep: got {self.keep} with samples {self.samples}; allowed: fewer than samples")
        return self

    def build(self, source: TaskSource, *, seed: int) -> Filter:
        return Filter(self)


@dataclass(frozen=True)
class FilterNote(Note):
    """What was dropped of a task's samples, and the mean process reward of its correct and of its wrong ones, kept and
    dropped; None where there are none."""

    kind: ClassVar[str] = "consistency-filter"
    dropped_correct: int
    dropped_wrong: int
    correct_kept: float | None
    correct_dropped: float | None
    wrong_kept: float | None
    wrong_dropped: float | None


class Filter(TaskGuide):
    def __init__(self, settings: ConsistencyFilter) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, self.settings.samples)
        await context.grade(leaves)
        known = graded(leaves)
        quality = [self.quality(leaf) for leaf in known]
        right = [is_correct(leaf) for leaf in known]
        order = self.settings.filter == "both"
        kept = consistent(quality, right, drop=max(0, len(known) - self.settings.keep), rank_wrong=order)
        stays = set(kept)

        def average(correct: bool, stay: bool) -> float | None:
            of = [q for i, q in enumerate(quality) if right[i] is correct and (i in stays) is stay]
            return mean(of) if of else None

        gone = [right[i] for i in range(len(known)) if i not in stays]
        means = [average(correct, stay) for correct in (True, False) for stay in (True, False)]
        context.tree.add_note(FilterNote(sum(gone), len(gone) - sum(gone), *means))
        dropped = {id(leaf) for i, leaf in enumerate(known) if i not in stays}
        return [leaf for leaf in leaves if id(leaf) not in dropped]  # the ungraded ones are counted later

    def quality(self, leaf: Node) -> float:
        """Mean process reward of a trajectory's steps; 0 where it has none."""
        assert leaf.grade is not None
        if self.settings.by is not None:
            return leaf.grade.parts.get(self.settings.by, 0.0)
        return mean([step.reward for step in leaf.grade.steps]) if leaf.grade.steps else 0.0

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, FilterNote)]
        self._metrics = {
            "dropped/correct": sum(note.dropped_correct for note in notes),
            "dropped/wrong": sum(note.dropped_wrong for note in notes),
        }
        correct = [(n.correct_kept, n.correct_dropped) for n in notes]
        wrong = [(n.wrong_dropped, n.wrong_kept) for n in notes]
        for name, pairs in (("correct", correct), ("wrong", wrong)):
            leads = [a - b for a, b in pairs if a is not None and b is not None]
            if leads:
                self._metrics = {**self._metrics, f"lead/{name}": mean(leads)}


def consistent(quality: Sequence[float], right: Sequence[bool], *, drop: int, rank_wrong: bool = True) -> list[int]:
    """Which samples of a task stay: correct ones of the highest process rewards, wrong ones of the lowest.

        d_+ = min(d, round((n_+ - n_- + d) / 2)), at least 0 and at most n_+        d_- = d - d_+

    As many of each are dropped as leave the two numbers as near to each other as can be.

    Args:
        quality: mean process reward of each sample's steps.
        drop: d, samples dropped; all but one at most.
        rank_wrong: False drops the first wrong ones instead of those of the highest process rewards.
    Returns:
        Their places, in order. Of equal samples the first are dropped.
    Source:
        PROF, arXiv:2509.03403; the released code, filter_trajectories.
    """
    places = range(len(right))
    correct = sorted((i for i in places if right[i]), key=lambda i: quality[i])
    wrong = [i for i in places if not right[i]]
    wrong = sorted(wrong, key=lambda i: -quality[i]) if rank_wrong else wrong
    drop = min(drop, len(right) - 1)
    of_correct = min(drop, max(0, round((len(correct) - len(wrong) + drop) / 2)), len(correct))
    of_wrong = min(drop - of_correct, len(wrong))
    of_correct = min(drop - of_wrong, len(correct))
    gone = {*correct[:of_correct], *wrong[:of_wrong]}
    return [i for i in places if i not in gone]
