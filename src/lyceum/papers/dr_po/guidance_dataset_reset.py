"""DR-PO: rollouts begin at states of demonstrations instead of at the prompt."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Guidance, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, begun, notes_of
from lyceum.models.demonstrations import demonstration_of, needed_demonstration
from lyceum.utils.aio import gather


@dataclass(frozen=True)
class ResetNote(Note):
    """Where a task's rollouts began.

    Attributes:
        given: tokens of the demonstration that each rollout was given; 0 for those that began at the prompt.
        too_long: resets that exceed the model's context and began at the prompt instead.
    """

    kind: ClassVar[str] = "dataset-reset"
    given: Sequence[int] = ()
    too_long: int = 0


class DatasetReset(GuidanceSettings):
    """A share of the rollouts goes on from a state of the task's demonstration, drawn uniformly; its tokens are graded
    with the completion and not trained.

    Rollouts of a task then begin in different states: a credit with a value per token (``gae``) compares each with its
    own, one that compares a group does not.
    """

    requires: ClassVar = ("trajectories",)
    refuses: ClassVar = (
        Need(
            "constrained-tokens",
            line="{got} with guidance 'dataset-reset', whose rollouts begin in demonstrations, which it may not allow; "
            "allowed: no constraint",
        ),
    )

    kind: Literal["dataset-reset"] = "dataset-reset"
    share: float = Field(1.0, ge=0, le=1)
    """Probability that a rollout begins in the demonstration (no unit); 0 is plain sampling from the prompt."""

    def check_tasks(self, source: TaskSource) -> None:
        needed_demonstration(source[0], "guidance 'dataset-reset'")

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return Resets(self)


class Resets(TaskGuide):
    """Has no state.

    Source: DR-PO, arXiv:2404.08495, algorithm 1; share and cuts as in appendix D.2 and the released code.
    """

    def __init__(self, settings: DatasetReset) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        text = demonstration_of(context.task)
        if text is None or n is None:
            context.tree.add_note(ResetNote([0] * (n or 0)))
            return await rollout(context, start, n)
        tokens = context.encode(text)
        drawn = cuts(len(tokens), n, self.settings.share, context.seed(self.settings.kind, start.address))
        fits = [cut if cut < context.tokens_left(start) else 0 for cut in drawn]
        context.tree.add_note(ResetNote(fits, sum(a != b for a, b in zip(drawn, fits, strict=True))))
        times = Counter(fits)
        starts = [(begun(start, tokens[:cut], context) if cut else start, size) for cut, size in times.items()]
        left = context.budget_left
        groups = await gather(rollout(context.share(left * size // n), node, size) for node, size in starts)
        return [leaf for group in groups for leaf in group]

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, ResetNote)]
        given = [tokens for note in notes for tokens in note.given if tokens]
        metrics: dict[str, float] = {
            "groups/guided": sum(any(note.given) for note in notes),
            "rollouts/reset": len(given),
            "too_long/resets": sum(note.too_long for note in notes),
        }
        if given:
            metrics["tokens/given"] = fmean(given)
        self._metrics = metrics


def cuts(length: int, n: int, share: float, seed: int) -> list[int]:
    """How many of a demonstration's tokens each of n rollouts is given.

    0 with probability 1 - share, else uniform over 1 .. length - 1: always all but the last token at most, which is the
    end of sequence. 0 for a demonstration of one token.

    Source:
        DR-PO, arXiv:2404.08495, appendix D.2.
    """
    rng = random.Random(seed)
    return [rng.randint(1, length - 1) if length > 1 and rng.random() < share else 0 for _ in range(n)]
