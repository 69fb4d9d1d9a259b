"""A guide model finishes what the policy began, then begins what the policy finishes (RLGF).

Source: Learning to Generate Better Than Your LLM, arXiv:2306.11816 (AggreVaTeD, PPO++ and D2LOLS, which is the one and
then the other), and the authors' code, Cornell-RL/tril (src/tril/algorithms).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.solution import ladder_of
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Continuation, Origin, Rollout, Sampling, TaskSource
from lyceum.guidance.base import TaskGuide, begun, check_ladders, notes_of
from lyceum.utils.aio import gather


class GuideModel(GuidanceSettings):
    """A share of the rollouts is one part the policy's and one the guide's; the policy's tokens alone are trained.

    Before ``switch_at`` the policy begins and the guide finishes, so that what is learnt is the next tokens that suit a
    good continuation; from there on the guide begins and the policy finishes, in states that it would seldom reach. The
    cut is uniform over a completion of the guide's. With a model of its own (``roles: {models: [learner, guide], play:
    {learner: learner, guide: guide}}``) the guide stays what the policy was as the stage began; it is better than the
    policy as it reads a hint of the task.
    """

    plays: ClassVar[tuple[str, ...]] = ("learner", "guide")
    requires: ClassVar = ("trajectories",)
    refuses: ClassVar = (
        Need(
            "constrained-tokens",
            line="{got} with guidance 'guide-model', whose rollouts are in part the guide's, which it may not allow; "
            "allowed: no constraint",
        ),
    )

    kind: Literal["guide-model"] = "guide-model"
    share: float = Field(default=0.8, ge=0, le=1)
    """Share of a task's rollouts in which the guide has a part, rounded to whole ones."""
    switch_at: float = Field(default=0.5, ge=0, le=1)
    """Progress of the stage from which on the guide begins and no longer finishes; 0: it always begins (PPO++); 1: it
    always finishes (AggreVaTeD)."""
    tier: str = Field(default="solution", min_length=1)
    """Tier of the hint that the guide reads: the last of it that the task has."""
    sampling: Sampling = Sampling()
    """How the guide's part is sampled; of the policy's part where the guide finishes too."""

    def check_tasks(self, source: TaskSource) -> None:
        check_ladders("guidance.guide-model", source, allow_leaks=False, tiers=[self.tier])

    def build(self, source: TaskSource, *, seed: int) -> GuideModelGuide:
        return GuideModelGuide(self, source)


@dataclass
class MixedAuthors(Note):
    """Who wrote a task's rollouts.

    Attributes:
        begun, finished: rollouts that the guide began, and finished.
        tokens: that it wrote in them.
        alone: rollouts in which it was to have a part, but had none: the policy ended before, or no token was left.
    """

    kind: ClassVar[str] = "guide-model"
    begun: int = 0
    finished: int = 0
    tokens: int = 0
    alone: int = 0


class GuideModelGuide(TaskGuide):
    """Has no state: which part is the guide's follows from the progress."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: GuideModel, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note, learner = MixedAuthors(), context.acting("learner")
        context.tree.add_note(note)
        mixed = round(self.settings.share * (n or 0))
        plain = await rollout(learner, start, None if n is None else n - mixed) if n is None or mixed < n else []
        hints = [hint for hint in ladder_of(context.task) if hint.tier == self.settings.tier]
        if not hints:
            note.alone += mixed
            return [*plain, *(await rollout(learner, start, mixed) if mixed else [])]
        prompt = context.acting("guide").render(self.source.hinted(context.task, hints[-1]).messages)
        drawn = await self.asked(context, prompt, mixed, ("begin",))
        rng = random.Random(context.seed(self.settings.kind, start.address))
        cuts = [rng.randint(1, max(1, len(one.tokens) - 1)) for one in drawn]
        if context.progress >= self.settings.switch_at:
            parts = [
                self.begun(rollout, learner, start, one.tokens[:cut], note)
                for one, cut in zip(drawn, cuts, strict=True)
            ]
        else:
            parts = [self.finished(context, start, prompt, cut, number, note) for number, cut in enumerate(cuts)]
        return [*plain, *(leaf for leaves in await gather(parts) for leaf in leaves)]

    async def asked(
        self, context: Context, tokens: Sequence[int], n: int, key: tuple[str | int, ...]
    ) -> list[Continuation]:
        """Continuations by the guide; none where no token is left for them."""
        guide = context.acting("guide")
        most = min(
            self.settings.sampling.max_completion_tokens, guide.tokens_left(Node.prompt(tokens)), guide.budget_left
        )
        if most < 1 or n < 1:
            return []
        sampling = self.settings.sampling.model_copy(update={"max_completion_tokens": most})
        return await guide.ask(tokens, n, sampling, key=(self.settings.kind, *key))

    async def begun(
        self, rollout: Rollout, learner: Context, start: Node, tokens: Sequence[int], note: MixedAuthors
    ) -> list[Node]:
        """The policy's end of what the guide began."""
        fits = len(tokens) < learner.tokens_left(start)
        note.begun += fits
        note.alone += not fits
        note.tokens += len(tokens) * fits
        return await rollout(learner, begun(start, tokens, learner) if fits else start, 1)

    async def finished(
        self, context: Context, start: Node, prompt: Sequence[int], cut: int, number: int, note: MixedAuthors
    ) -> list[Node]:
        """The guide's end of what the policy began: at most so many tokens of the policy's."""
        learner = context.acting("learner")
        most = min(cut, learner.budget_left, learner.tokens_left(start))
        if most < 1:
            return []
        (leaf,) = await learner.extend(
            start, 1, self.settings.sampling.model_copy(update={"max_completion_tokens": most})
        )
        drawn = (
            await self.asked(context, [*prompt, *leaf.completion_tokens], 1, ("finish", number))
            if leaf.finish == "length"
            else []
        )
        if not drawn:
            note.alone += 1
            return [leaf]
        end = leaf.add(drawn[0].tokens, Origin.PREFIX)
        write_texts([end], learner.decode, terminal=True)
        end.finish, end.role, end.model = drawn[0].finish, leaf.role, leaf.model
        note.finished += 1
        note.tokens += len(end.tokens)
        return [end]

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, MixedAuthors)]
        self._metrics = {
            "rollouts/begun": sum(note.begun for note in notes),
            "rollouts/finished": sum(note.finished for note in notes),
            "rollouts/alone": sum(note.alone for note in notes),
            "tokens/guide": sum(note.tokens for note in notes),
        }
