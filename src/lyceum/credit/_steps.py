"""Where a completion is cut into steps, for credits that compare steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.forest import Forest
from lyceum.core.keys import Span, row_tokens
from lyceum.credit.base import CreditWithKL
from lyceum.utils.errors import RecipeError


class StepwiseCredit(CreditWithKL):
    """Settings of credits that compare steps."""

    without_steps: ClassVar[str] = "group"
    """What it would be where every completion is one step."""

    steps: Literal["judged", "tokens", "separator"] = "judged"
    """Where a completion is cut into steps: where its grader judged one or a node of the tree ends, every
    ``step_tokens`` tokens, or after each separator token. ``judged`` needs a grader that judges steps (``chain``'s, or
    the reward ``steps``) or a rollout that grows trees: a run with neither fails at its first step with non-zero
    advantages."""
    step_tokens: int = Field(16, ge=1)
    """Tokens per step, for ``tokens``."""
    separator_ids: tuple[int, ...] = ()
    """Token ids that end a step, for ``separator`` (a line's end, say)."""

    @model_validator(mode="after")
    def _separators_where_used(self) -> StepwiseCredit:
        if (self.steps == "separator") != bool(self.separator_ids):
            raise ValueError(
                f"separator_ids: got {list(self.separator_ids)} with steps {self.steps!r}; allowed: at least one with "
                "'separator', none with the others"
            )
        return self

    def spans(self, forest: Forest, *, learns: bool) -> list[list[Span]]:
        """Each row's steps, from the end of its prompt to its end.

        Args:
            learns: whether the step's rewards differ: it is then refused where every completion is one step.
        """
        segments: list[list[Span]] = [[] for _ in range(forest.n_rows)]
        begin = [0] * forest.n_rows
        passes = (forest.segment_row, forest.segment_node, forest.segment_start, forest.segment_end)
        for row, node, start, end in zip(*(column.tolist() for column in passes), strict=True):
            if int(forest.node_parent[node]) == Forest.ROOT:
                begin[row] = end
            elif end > start:
                segments[row].append((start, end))
        if self.steps == "judged":
            if learns:
                refuse_without_steps(forest, segments, self.without_steps)
            return segments
        cut: list[list[Span]] = []
        for row, start in zip(row_tokens(forest), begin, strict=True):
            if self.steps == "tokens":
                ends = list(range(start + self.step_tokens, len(row), self.step_tokens))
            else:
                ends = [at + 1 for at in range(start, len(row) - 1) if row[at] in self.separator_ids]
            edges = [start, *ends, len(row)]
            cut.append([(a, b) for a, b in pairwise(edges) if b > a])
        return cut


def refuse_without_steps(forest: Forest, steps: Sequence[Sequence[Span]], kind: str) -> None:
    """Raise RecipeError where every completion is one unjudged step: this would be the plain credit ``kind``.

    Whether a grader judges steps is only known from its grades.
    """
    if all(len(of) < 2 for of in steps) and bool(forest.segment_reward.isnan().all()):
        raise RecipeError(
            f"credit.steps: got 'judged', but in {len(steps)} completions the grader judged no step and the rollout "
            f"made none, so that this would be credit.kind '{kind}'; allowed: 'tokens' with credit.step_tokens, "
            "'separator' with credit.separator_ids, tasks whose grader judges steps (chain), reward.kind 'steps', or a "
            "rollout of trees"
        )
