"""Failed programs are tried again with what their tests said as guidance; what then passes is learnt from (Agent-RLVR).

Source: Agent-RLVR, arXiv:2506.11425: attempt, tests, guidance, another attempt, an update on the guided trajectories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, graded, notes_of, start_under
from lyceum.utils.aio import gather


class RetryWithFeedback(GuidanceSettings):
    """Each failed attempt, up to ``most`` of a task, is shown to the policy with what the verifier says of it, and
    answered again. Guided attempts are trained under the prompts that they were written under, those of one attempt
    compared with each other; the attempts before them too, unless ``keep`` is false.
    """

    kind: Literal["test-feedback"] = "test-feedback"
    most: int = Field(default=2, ge=1, le=64)
    """Failed attempts of a task that are tried again: the first different ones."""
    retries: int = Field(default=4, ge=1, le=64)
    """Guided attempts after each."""
    guidance: str = Field(
        default="The tests say: {feedback}\n\nFind the mistake, and give the whole program again.",
        pattern=r"\{feedback\}",
    )
    """What the user says after a failed attempt; ``{feedback}`` is what the tests said."""
    keep: bool = True
    """Whether the unguided attempts are trained too."""

    def build(self, source: TaskSource, *, seed: int) -> RetryGuide:
        return RetryGuide(self)


@dataclass
class Retried(Note):
    """What became of a task's failed attempts.

    Attributes:
        failed: attempts of the task that failed, of which some are tried again.
        guided: guided attempts that were graded.
        rescued: those that are correct.
        silent: failed attempts of which the verifier said nothing.
    """

    kind: ClassVar[str] = "test-feedback"
    failed: int = 0
    guided: int = 0
    rescued: int = 0
    silent: int = 0


class RetryGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: RetryWithFeedback) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        own = await rollout(context, start, n)
        await context.grade(own)
        wrong = [leaf for leaf in graded(own) if not is_correct(leaf)]
        note = Retried(len(wrong))
        context.tree.add_note(note)
        said: dict[str, tuple[Node, str]] = {}
        for leaf in wrong:
            feedback = leaf.grade.details if leaf.grade is not None else None
            note.silent += not feedback
            if feedback:
                said.setdefault(leaf.completion, (leaf, feedback))
        tried = list(said.values())[: self.settings.most]
        found = await gather([self.again(rollout, context, start, leaf, text, note) for leaf, text in tried])
        return [*(own if self.settings.keep else []), *(leaf for leaves in found for leaf in leaves)]

    async def again(
        self, rollout: Rollout, context: Context, start: Node, attempt: Node, feedback: str, note: Retried
    ) -> list[Node]:
        """Graded attempts after a failed one and what was said of it; none where no token is left."""
        text = self.settings.guidance.replace("{feedback}", feedback)
        keep, tokens = context.follow(attempt, [{"role": "user", "content": text}])
        prompt = start_under([*attempt.path_tokens()[:keep], *tokens], context, start)
        if prompt is None or context.budget_left <= 0:
            return []
        leaves = await rollout(context, prompt, self.settings.retries)
        await context.grade(leaves)
        note.guided += len(graded(leaves))
        note.rescued += sum(map(is_correct, leaves))
        return leaves

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Retried)]
        self._metrics = {
            "attempts/failed": sum(note.failed for note in notes),
            "attempts/silent": sum(note.silent for note in notes),
            "attempts/guided": sum(note.guided for note in notes),
            "attempts/rescued": sum(note.rescued for note in notes),
        }
