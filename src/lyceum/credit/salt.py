"""SALT: the trajectories of a group merged into a graph; a step that several take gets their mean advantage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Literal

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.forest import Forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credit
from lyceum.credit._paths import ForestCredit
from lyceum.credit.base import CreditWithKL, lay, needs_company, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.numbers import mean as mean_of

Step = tuple[int, int]
"""Token range [start, end) of a row."""


class Salt(CreditWithKL):
    """Group-relative advantages, averaged over the trajectories wherever they take the same step from the same state.

    The paper works on agents whose environment gives their state. A text has none: here a state is the preceding steps,
    and a step the tokens between two cuts. The paper's own rule for identical steps was not available, and its code is
    not released: this follows its abstract, that a graph of the trajectories of one prompt separates shared steps from
    distinct ones.
    """

    kind: Literal["salt"] = "salt"
    steps: Literal["judged", "tokens", "separator"] = "judged"
    """Where a completion is cut into steps: where its grader judged one or a node of the tree ends, every
    ``step_tokens`` tokens, or after each separator token. ``judged`` needs a grader that judges steps (``chain``'s, or
    the reward ``steps``) or a rollout that grows trees: a run with neither fails at its first step with non-zero
    advantages."""
    step_tokens: int = Field(16, ge=1)
    """Tokens per step, for ``tokens``."""
    separator_ids: tuple[int, ...] = ()
    """Token ids that end a step, for ``separator`` (a line's end, say)."""
    history: int | None = Field(default=1, ge=0)
    """Number of preceding steps that must be equal too for two steps to be merged; null: all, from the prompt on."""
    scale: Scale = "std"
    """Divisor of a trajectory's difference from its group's mean, as in ``credit: group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @model_validator(mode="after")
    def _separators_where_used(self) -> Salt:
        if (self.steps == "separator") != bool(self.separator_ids):
            raise ValueError(
                f"separator_ids: got {list(self.separator_ids)} with steps {self.steps!r}; allowed: at least one with "
                "'separator', none with the others"
            )
        return self

    def build(self) -> Credit:
        return ForestCredit(self.needs, self.advantages)

    def check(self, stage: Composition) -> list[str]:
        return needs_company(self.kind, stage)

    def advantages(self, forest: Forest) -> Float[Tensor, "R L"]:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=self.scale, ddof=self.ddof, eps=self.eps)
        tokens = [
            row[:length] for row, length in zip(rows.gather(forest.token).tolist(), forest.row_length, strict=True)
        ]
        steps = self._steps(forest, tokens)
        if self.steps == "judged" and bool(of_row.any()):
            refuse_without_steps(forest, steps)
        words = [[tuple(row[a:b]) for a, b in of] for row, of in zip(tokens, steps, strict=True)]
        merged = merged_advantages(of_row.tolist(), forest.group.tolist(), words, history=self.history)
        advantage = of_row.new_zeros(rows.index.shape)
        for row, (of, values) in enumerate(zip(steps, merged, strict=True)):
            for (start, end), value in zip(of, values, strict=True):
                advantage[row, start:end] = value
        return lay(advantage, forest, rows)

    def _steps(self, forest: Forest, tokens: Sequence[Sequence[int]]) -> list[list[Step]]:
        """Each row's steps, from the end of its prompt to its end."""
        segments: list[list[Step]] = [[] for _ in tokens]
        begin = [0] * len(tokens)
        passes = (forest.segment_row, forest.segment_node, forest.segment_start, forest.segment_end)
        for row, node, start, end in zip(*(column.tolist() for column in passes), strict=True):
            if int(forest.node_parent[node]) == Forest.ROOT:
                begin[row] = end
            elif end > start:
                segments[row].append((start, end))
        if self.steps == "judged":
            return segments
        cut: list[list[Step]] = []
        for row, start in zip(tokens, begin, strict=True):
            if self.steps == "tokens":
                ends = list(range(start + self.step_tokens, len(row), self.step_tokens))
            else:
                ends = [at + 1 for at in range(start, len(row) - 1) if row[at] in self.separator_ids]
            edges = [start, *ends, len(row)]
            cut.append([(a, b) for a, b in pairwise(edges) if b > a])
        return cut


def refuse_without_steps(forest: Forest, steps: Sequence[Sequence[Step]]) -> None:
    """Raise RecipeError where every completion is one unjudged step: this would be plain ``group`` credit.

    Whether a grader judges steps is only known from its grades.
    """
    if all(len(of) < 2 for of in steps) and bool(forest.segment_reward.isnan().all()):
        raise RecipeError(
            f"credit.steps: got 'judged', but in {len(steps)} completions the grader judged no step and the rollout "
            "made none, so that this would be credit.kind 'group'; allowed: 'tokens' with credit.step_tokens, "
            "'separator' with credit.separator_ids, tasks whose grader judges steps (chain), reward.kind 'steps', or a "
            "rollout of trees"
        )


def merged_advantages(
    advantage: Sequence[float],
    group: Sequence[int],
    steps: Sequence[Sequence[Hashable]],
    *,
    history: int | None = 1,
) -> list[list[float]]:
    """The advantage of each step of each row: the mean over the rows of its group that take the same step.

        A(step) = mean over the rows through it of A_row

    Args:
        advantage: of each row, without unit.
        group: of each row; steps of different groups are never merged.
        steps: of each row, in order; same steps have equal values.
        history: two steps are merged where they and this many steps before each are equal; None: all before. Fewer
            preceding steps are a separate state: the beginning.
    Returns:
        One value per step of each row. A row that takes a step twice counts once.
    Source:
        SALT, arXiv:2510.20022 (abstract; see the class for what is ours).
    """
    key: list[list[Hashable]] = []
    through: dict[Hashable, dict[int, float]] = defaultdict(dict)
    for row, own in enumerate(steps):
        key.append([])
        for at, step in enumerate(own):
            reach = at if history is None else history
            before = tuple(own[max(0, at - reach) : at])
            edge = (group[row], before, step)
            key[-1].append(edge)
            through[edge][row] = advantage[row]
    mean = {edge: mean_of(rows.values()) for edge, rows in through.items()}
    return [[mean[edge] for edge in own] for own in key]
