"""BARFI: online learning in which the weights of auxiliary reward parts follow what they do to the primary one.

Source: Behavior Alignment via Reward Function Optimization, arXiv:2310.19007, and its released code
(barfi-gw/src/algorithms/BarfiNeumann.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.group import Group
from lyceum.core.settings import Composition
from lyceum.core.types import StepMetrics
from lyceum.papers.barfi.credit_by_part import ByPart, PartCredit
from lyceum.training.stages._auxiliary import Auxiliary
from lyceum.training.stages.online import Online, OnlineRun
from lyceum.utils.lazy_imports import Tensor


class Bilevel(Online):
    """The online loop, with an outer one that moves the weights of the reward's parts by the primary part alone."""

    kind: Literal["bilevel"] = "bilevel"  # pyright: ignore[reportIncompatibleVariableOverride]
    primary: str = "task"
    """The part whose return the outer loop raises, as it is named in ``credit.parts``. Its own weight stays; the others
    begin at theirs."""
    outer_lr: float = Field(default=0.1, ge=0)
    """Change of a part's weight per step where its gradient and the primary's agree fully (no unit); 0 keeps all."""

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if not isinstance(self.credit, ByPart):
            return [
                *lines,
                f"credit.kind: got '{self.credit.kind}' in stage 'bilevel', which weighs the advantages of parts; "
                "allowed: by-part",
            ]
        if self.primary not in self.credit.parts or len(self.credit.parts) < 2:
            lines.append(
                f"primary: got '{self.primary}' with credit.parts {', '.join(self.credit.parts)}; allowed: one of them "
                "beside another"
            )
        if any(term.end is not None for term in self.credit.parts.values()):
            lines.append("credit.parts: got an end, but the outer loop moves the weights; allowed: null")
        if self.replay is not None or len(self.roles.models) > 1:
            lines.append("replay, roles.models: got one of them in stage 'bilevel'; allowed: no replay, and one model")
        return lines

    def also(self, run: OnlineRun) -> list[Auxiliary]:
        return [OuterLoop(self, run)]


class OuterLoop(Auxiliary):
    """Moves the weights in the credit, by the groups of the step before, which the policy was last trained on."""

    def __init__(self, settings: Bilevel, run: OnlineRun) -> None:
        self.settings, self.run, self.learner = settings, run, run.learner
        self.parts = cast(PartCredit, run.credit)
        self.past: list[Group] = []
        self.updated = False

    def before(self, forest: Forest) -> dict[str, float]:
        """Move the weights by the outer gradient. The new forest is the policy's that they led to; the inner gradients
        are of the groups that it was trained on, both at its present weights."""
        if not self.past:
            return {}
        with self.run.session.training(self.learner):
            ahead = self.gradient(forest, self.settings.primary)
            past = self.run.flatten(self.past)
            found: dict[str, float] = {}
            for name in self.parts.weights:
                if name != self.settings.primary:
                    agreement = cosine(self.gradient(past, name), ahead)
                    self.parts.weights[name] += self.settings.outer_lr * agreement
                    found |= {f"outer/{name}/agreement": agreement, f"outer/{name}/moved": abs(agreement)}
        return found

    def gradient(self, forest: Forest, part: str) -> list[Tensor]:
        """Of the objective, with one part's advantages alone; every ratio is 1."""
        forest = self.learner.annotate(forest, self.run.method.columns)
        return self.learner.gradients(forest, self.parts.of_part(forest, part), self.run.objective).weights

    async def after(self, groups: Sequence[Group], metrics: StepMetrics) -> StepMetrics:
        kept = [group for group in groups if group.kept]
        self.past = kept if any(group.tree.graded for group in kept) else self.past
        return metrics

    def state_dict(self) -> dict[str, Any]:
        from lyceum.run.trees import dump_groups  # here: imports pyarrow

        return {"past": dump_groups(self.past)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from lyceum.run.trees import load_groups  # here: imports pyarrow

        require_keys("stage.outer", given=state, needed=("past",))
        self.past = load_groups(state["past"])


def cosine(inner: Sequence[Tensor], outer: Sequence[Tensor]) -> float:
    """Outer gradient of a part's weight, by its sign and its share of the largest that it could be.

        dJ / d w_k = v . H^-1 g_k  ~  v . g_k        H^-1 ~ 1, the first term of its Neumann series
        cos(v, g_k) = v . g_k / (|v| |g_k|)

    Args:
        inner: g_k, gradient of the objective with part k's advantages, on what the policy was trained on: the objective
            is linear in the weights w, so that it is also the derivative of its gradient by w_k.
        outer: v, gradient of the primary part's return, on what the policy sampled afterwards.
    Returns:
        -1 to 1; 0 where one of them is 0.
    Source:
        arXiv:2310.19007, its released code (outer_Neumann). The division is ours, where the authors have an optimiser.
    """
    dot = sum(float((a.double() * b.double()).sum()) for a, b in zip(inner, outer, strict=True))
    size = math.sqrt(math.prod(sum(float(x.double().square().sum()) for x in each) for each in (inner, outer)))
    return dot / size if size > 0 else 0.0
