"""Train Long, Think Short: a token budget that shrinks during training, stated in the prompt and rewarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Hint, Task, TaskSource
from lyceum.curriculum.base import Around
from lyceum.models.policy import Policy
from lyceum.papers.train_long_think_short.reward_token_budget import TaskBudget
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.errors import RecipeError

FIELD = "token_budget"
"""Placeholder of the budget in a template."""


class ShrinkingBudget(CurriculumSettings):
    """The draws of another curriculum, each task with the step's token budget."""

    gives: ClassVar = ("end", "token-budgets")
    kind: Literal["shrinking-budget"] = "shrinking-budget"
    start_tokens: int = Field(256, ge=1)
    """Budget of the first steps, in tokens."""
    decay: float = Field(0.7, gt=0, lt=1)
    """Factor on the budget at each reduction (no unit); ``linear`` subtracts as many tokens each time as this
    does the first time."""
    every_steps: int = Field(150, ge=1)
    """Steps between reductions."""
    least_tokens: int = Field(1, ge=1)
    """Minimum budget, in tokens."""
    schedule: Literal["exponential", "linear"] = "exponential"
    """Schedule of the budget."""
    template: str | None = "IMPORTANT: You should use exactly {token_budget} tokens in your response."
    """Text that states the budget, with {token_budget}; null leaves the prompt unchanged."""
    place: Literal["line", "hint"] = "line"
    """Where the template goes: ``line``: below the last message; ``hint``: where the tasks put a hint (a chain's
    before its ``=``), for a small model that can read its tasks in no other form."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    @field_validator("template")
    @classmethod
    def _template_names_the_budget(cls, template: str | None) -> str | None:
        if template is not None and set(fields_of(template)) != {FIELD}:
            raise ValueError(f"got {template!r}; allowed: a text with {{{FIELD}}}, or null")
        return template

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        """
        Raises:
            RecipeError: the policy's tokenizer cannot write the template, or the digits of a budget.
        """
        if policy is not None and self.template is not None:
            text = fill(self.template, {FIELD: "0123456789"})
            read = policy.decode(policy.encode(text))
            if missing := [sign for sign in dict.fromkeys(text) if not sign.isspace() and sign not in read]:
                raise RecipeError(
                    f"curriculum.template: got {self.template!r}, but the model's vocabulary has no "
                    f"{' '.join(missing)}; allowed: a text of what it has, or null"
                )
        return ShrinkingBudgetCurriculum(self, self.draws.build(source, seed=seed, policy=policy), source)


class ShrinkingBudgetCurriculum(Around):
    """Its state: the number of observed steps."""

    def __init__(self, settings: ShrinkingBudget, inner: Curriculum, source: TaskSource) -> None:
        super().__init__(inner)
        self.settings = settings
        self.source = source
        self.steps = 0
        self.figure = self.budget

    @property
    def budget(self) -> int:
        """Budget of the next step, in tokens."""
        return self.budget_after(self.steps)

    @property
    def done(self) -> str:
        """Steps at the minimum are as many as at each budget before."""
        least, every = self.settings.least_tokens, self.settings.every_steps
        if self.steps < every or self.budget_after(self.steps - every) > least:
            return ""
        return f"its budget has been {least} tokens for {every} steps"

    def budget_after(self, steps: int) -> int:
        settings = self.settings
        return token_budget(
            steps,
            start=settings.start_tokens,
            decay=settings.decay,
            every=settings.every_steps,
            least=settings.least_tokens,
            linear=settings.schedule == "linear",
        )

    def draw(self, n: int) -> list[Task]:
        return [self._told(task) for task in self.inner.draw(n)]

    def _told(self, task: Task) -> Task:
        budget, template = self.budget, self.settings.template
        if template is None or self.settings.place == "line":
            return with_budget(task, budget, template)
        hint = Hint("budget", fill(template, {FIELD: budget}))
        # The messages alone: the budget is no help with the task, so the task must not count as hinted.
        return replace(task, messages=self.source.hinted(task, hint).messages).with_note(TaskBudget(budget))

    def observe(self, trees: Sequence[Tree]) -> None:
        self.figure = self.budget
        self.steps += 1
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {"tokens/budget": float(self.figure), **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps = int(state["steps"])


def token_budget(step: int, *, start: int, decay: float, every: int, least: int = 1, linear: bool = False) -> int:
    """The budget at a step, in whole tokens.

        B(t) = max(least, B_0 gamma^k)               k = floor(t / T)
        B(t) = max(least, B_0 (1 - (1 - gamma) k))   linear

    Args:
        step: t, from 0.
        start: B_0, in tokens.
        decay: gamma, in 0 .. 1.
        every: T, in steps.
        least: in tokens.
    Returns:
        Rounded down: 256 tokens at 0.7 become 179, 125 and 87, as in the paper's metrics.
    Source:
        Train Long, Think Short, arXiv:2508.08940, section 3.4; linear, section 4.6.
    """
    drops = step // every
    # A product that is a whole number up to its last bit (100 times 0.29) is that number.
    exact = start * (1 - (1 - decay) * drops if linear else decay**drops)
    return max(least, int(exact + 1e-9))


def with_budget(task: Task, budget: int, template: str | None) -> Task:
    """The task with its budget and, with a template, a line below its last message that states it."""
    task = task.with_note(TaskBudget(budget))
    if template is None:
        return task
    *before, last = task.messages
    content, line = last["content"], fill(template, {FIELD: budget})
    content = f"{content}\n{line}" if isinstance(content, str) else [*content, {"type": "text", "text": line}]
    return task.with_messages((*before, {**last, "content": content}))
