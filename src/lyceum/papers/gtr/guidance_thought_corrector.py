"""A corrector finds the first wrong thought of a trajectory and writes it right; that is imitated beside the RL (GTR).

Source: GTR, arXiv:2503.08525: thoughts that a corrector evaluates and rewrites at each RL step are imitated, actions
are reinforced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Origin, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, apart, child_with, graded, notes_of
from lyceum.models.demonstrations import demonstration_of, needed_demonstration
from lyceum.utils.numbers import mean


class ThoughtCorrector(GuidanceSettings):
    """Where the tasks' rule finds a wrong step in a rollout, the right thoughts from there on, out of the task's
    demonstration, stand below the policy's own right ones, as a teacher's; with objective ``ppo-and-sft`` they are
    imitated. The policy's rollouts are trained as they are.

    Steps before the first wrong one are the demonstration's, so the corrector goes on where the policy went astray.
    """

    kind: Literal["thought-corrector"] = "thought-corrector"
    share: float = Field(default=1.0, ge=0, le=1)
    """Share of a group's rollouts, rounded to whole ones, that the corrector looks at: the first of them."""

    def check_tasks(self, source: TaskSource) -> None:
        needed_demonstration(source[0], "guidance 'thought-corrector'")

    def build(self, source: TaskSource, *, seed: int) -> ThoughtCorrectorGuide:
        return ThoughtCorrectorGuide(self)


@dataclass
class Corrections(Note):
    """What the corrector did in a task.

    Attributes:
        looked_at: rollouts that it evaluated.
        corrected: in how many of them it wrote a thought again.
        kept: tokens of right thoughts of the policy's own that its corrections stand below.
        distinct: different completions among all rollouts, over their number: low where thoughts have collapsed.
    """

    kind: ClassVar[str] = "thought-corrector"
    looked_at: int = 0
    corrected: int = 0
    kept: int = 0
    distinct: float = 1.0


class ThoughtCorrectorGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: ThoughtCorrector) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, n)
        await context.grade(leaves)
        known = graded(leaves)
        looked_at = known[: round(self.settings.share * len(known))]
        note = Corrections(len(looked_at), distinct=len({leaf.completion for leaf in leaves}) / max(1, len(leaves)))
        context.tree.add_note(note)
        text = demonstration_of(context.task)
        if text is None:
            return leaves
        corrected = [self.corrected(leaf, text, context, start, note) for leaf in looked_at]
        found = [leaf for leaf in dict.fromkeys(corrected) if leaf is not None]
        await context.grade(found)
        return [*leaves, *found]

    def corrected(self, leaf: Node, text: str, context: Context, start: Node, note: Corrections) -> Node | None:
        """The rollout up to its first wrong step, and the teacher's thoughts from there on; None where it has none."""
        assert leaf.grade is not None
        wrong = next((step for step in leaf.grade.steps if step.reward <= 0), None)
        if wrong is None:
            return None
        own = leaf.completion[: wrong.start]
        if not text.startswith(own):  # a step was left out, or stands elsewhere
            own = ""
        ends = TokenEnds(context.decode).of(leaf)
        tokens = leaf.completion_tokens
        count = max((i for i in range(len(ends)) if ends[i] <= len(own)), default=0)
        whole = context.encode(text)
        kept = tokens[:count] if whole[:count] == tokens[:count] else []
        if len(whole) > context.tokens_left(start):
            return None
        below = apart(context.tree, start, self.settings.kind)
        if kept:
            below = child_with(below, kept, Origin.PREFIX) or below.add(kept, Origin.PREFIX)
            write_texts([below], context.decode, terminal=False)
        rest = whole[len(kept) :]
        end = child_with(below, rest, Origin.TEACHER)
        note.corrected += 1
        note.kept += len(kept)
        if end is None:
            end = below.add(rest, Origin.TEACHER)
            write_texts([end], context.decode, terminal=True)
            end.finish = "stop"
        return end

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Corrections)]
        metrics: dict[str, float] = {
            "thoughts/looked_at": sum(note.looked_at for note in notes),
            "thoughts/corrected": sum(note.corrected for note in notes),
            "tokens/kept": sum(note.kept for note in notes),
        }
        if notes:
            metrics["thoughts/distinct"] = mean([note.distinct for note in notes])
        self._metrics = metrics
