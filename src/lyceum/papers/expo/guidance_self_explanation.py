"""ExPO: the policy is shown the answer and explains how to get there; the explanation is imitated without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, graft, is_correct
from lyceum.core.types import Context, Guidance, Hint, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, answer_of, apart, failed, first_tasks, graded, notes_of, start_with
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.errors import RecipeError


@dataclass(frozen=True)
class ExplanationNote(Note):
    """Result of asking for a task's explanation.

    Attributes:
        outcome: ``explained``, ``wrong`` where no explanation ended in the answer, or why none was asked for
            (``not needed``, ``no answer``, ``no budget``, ``too long``).
        right, sampled: number of correct and of all explanations.
    """

    kind: ClassVar[str] = "self-explanation"
    outcome: str
    right: int = 0
    sampled: int = 0


class SelfExplanation(GuidanceSettings):
    """The policy explains the reference answer that its prompt gives; explanations that end in it are moved below the
    task's own prompt, apart from the group.

    ``objective: ppo-and-sft`` imitates them; with any other they are a group of their own, all of whose rewards are
    equal.
    """

    kind: Literal["self-explanation"] = "self-explanation"
    when: Literal["always", "failed"] = "always"
    """``always``, or only where every rollout of the task fails."""
    samples: int = Field(1, ge=1, le=4096)
    """Explanations that are sampled per task."""
    prompt: str = "The answer is {answer}. Explain step by step how to get there, and end with it."
    """What the hint in the prompt says; {answer} is the reference answer."""

    @field_validator("prompt")
    @classmethod
    def _prompt_gives_the_answer(cls, prompt: str) -> str:
        if set(fields_of(prompt)) != {"answer"}:
            raise ValueError(f"got {prompt!r}; allowed: a text with {{answer}}")
        return prompt

    def check_tasks(self, source: TaskSource) -> None:
        if all(answer_of(task) is None for task in first_tasks(source)):
            raise RecipeError(
                "guidance.self-explanation: none of the tasks has an answer to explain; allowed: tasks with a "
                "reference answer (tasks.columns.answer of a dataset)"
            )

    def build(self, source: TaskSource, *, seed: int) -> Guidance:
        return Explainer(self, source)


class Explainer(TaskGuide):
    """Has no state.

    Source: ExPO, arXiv:2507.02834: explanations c ~ pi(. | q, a*), trained as log pi(c, a* | q).
    """

    def __init__(self, settings: SelfExplanation, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        leaves = await rollout(context, start, n)
        explained, note = await self.explain(rollout, context, start, leaves)
        context.tree.add_note(note)
        return [*leaves, *explained]

    async def explain(
        self, rollout: Rollout, context: Context, start: Node, own: Sequence[Node]
    ) -> tuple[list[Node], ExplanationNote]:
        """The correct explanations below a copy of the task's prompt, and what became of all."""
        if self.settings.when == "failed":
            await context.grade(own)
            if not failed(own):
                return [], ExplanationNote("not needed")
        answer = answer_of(context.task)
        if answer is None:
            return [], ExplanationNote("no answer")
        if context.budget_left <= 0:
            return [], ExplanationNote("no budget")
        hint = Hint("answer", fill(self.settings.prompt, {"answer": answer}))
        hinted = start_with(hint, context, self.source, start)
        if hinted is None:
            return [], ExplanationNote("too long")
        written = await rollout(context, hinted, self.settings.samples)
        await context.grade(written)
        right = [leaf for leaf in written if is_correct(leaf)]
        note = ExplanationNote("explained" if right else "wrong", len(right), len(graded(written)))
        return [graft(leaf, apart(context.tree, start, self.settings.kind)) for leaf in right], note

    def observe(self, trees: Sequence[Tree]) -> None:
        noted = notes_of(trees, ExplanationNote)
        outcomes = Counter(note.outcome for _, note in noted)
        self._metrics = {
            "groups/guided": outcomes["explained"],
            "groups/rescued": sum(note.right > 0 and failed(tree.unaided) for tree, note in noted),
            "explanations/right": sum(note.right for _, note in noted),
            "explanations/sampled": sum(note.sampled for _, note in noted),
            "without_answer/tasks": outcomes["no answer"],
            "too_long/hints": outcomes["too long"],
        }
