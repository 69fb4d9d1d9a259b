"""Advantages of the reward's parts, each normalised within the group by itself, added up with weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import Settings, require_keys
from lyceum.core.forest import Forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credit, Credited, State
from lyceum.credit.base import CreditWithKL, row_reward, spread
from lyceum.credit.group import Scale, group_relative
from lyceum.credit.shares import token_shares
from lyceum.reward.base import part_names
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.terminal import quoted

OUTCOME = "outcome"
"""Names the whole outcome among the parts."""


class PartTerm(Settings):
    """One part's advantages: a weight alone, or a weight with when it counts."""

    weight: float = 1.0
    """Weight of the part's advantages in the sum (no unit)."""
    end: float | None = None
    """Weight that it goes to, linearly, over ``steps``; null: it stays."""
    steps: int = Field(default=1, ge=1)
    """Steps of the stage until the weight is ``end``."""
    gate: Literal["always", "correct", "incorrect"] = "always"
    """Rows in which it counts: all, or those whose answer is correct, or incorrect. They are compared with each other
    alone; in the others the part's advantage is 0."""

    @model_validator(mode="before")
    @classmethod
    def _weight_alone(cls, value: Any) -> Any:
        return {"weight": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    def at(self, step: int) -> float:
        """The weight after so many steps."""
        if self.end is None:
            return self.weight
        return self.weight + (self.end - self.weight) * min(1.0, step / self.steps)

    def counts(self, correct: Float[Tensor, " R"]) -> Bool[Tensor, " R"]:
        """The rows in which it counts."""
        if self.gate == "always":
            return torch.ones_like(correct, dtype=torch.bool)
        return correct == float(self.gate == "correct")


class ByPart(CreditWithKL):
    """The sum of each reward part's own group-relative advantage.

    Two signals of different scale are compared in their own units: a verifier's 0 or 1 does not drown in a score that
    spreads over tens, and where all answers are correct the score alone is left. With one part it is ``group``.

    A part with a weight in the reward is a term of the outcome: where it abstains the trajectory is ungraded. One of
    weight 0 there (``reward: [task, {kind: drm, weight: 0}]``) is only compared here: where it abstains, its own term
    is 0 and the others stand, so that a judge that fails costs no verdict.

    Source:
        DRM, arXiv:2510.11457 (the score's advantage is added to the verifier's), as its reviews on OpenReview tell.
    """

    reads_parts: ClassVar[bool] = True
    requires: ClassVar = ("company",)

    kind: Literal["by-part"] = "by-part"
    parts: dict[str, PartTerm] = Field(default_factory=lambda: {OUTCOME: PartTerm()}, min_length=1, max_length=32)
    """Part -> weight, or {weight, end, steps, gate}. ``outcome`` is the reward's weighted sum, from which alone
    ``kl_in_reward`` is subtracted; its parts are named as in the metrics: ``task``, ``drm``, ``drm/coherence``, a
    function by its name, the second part of a name ``NAME#2``."""
    scale: Scale = "std"
    """Divisor of a part's difference from the group's mean, as in kind ``group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the part's unit."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.parts)  # a KL cost is the outcome's own

    def build(self) -> Credit:
        return PartCredit(self)

    def check(self, stage: Composition) -> list[str]:
        given = part_names(stage.reward)
        if "parts" not in self.model_fields_set and len(given) > 1:
            weights = ", ".join(f"{quoted(name)}: 1" for name in given)
            return [f"credit.parts: not given, which would be kind 'group'; allowed: weights, such as {{{weights}}}"]
        lines = [
            f"credit.parts: got {quoted(name)}, which is no part of the reward; allowed: "
            f"{', '.join((OUTCOME, *given))}, or a part of one, such as {given[0] if given else 'task'}/NAME"
            for name in self.parts
            if name.partition("/")[0] not in (OUTCOME, *given)
        ]
        if self.kl_in_reward.coefficient and OUTCOME not in self.parts:
            lines.append("credit.kl_in_reward: got a coefficient, but credit.parts have no 'outcome'; allowed: with it")
        return lines


class PartCredit:
    """Counts the steps of its stage, for weights that change.

    Attributes:
        weights: of the parts, at the present step; a stage may move those that have no ``end``.
    """

    measures: frozenset[str] = frozenset()

    def __init__(self, settings: ByPart) -> None:
        self.settings, self.needs, self.step = settings, settings.needs, 0
        self.weights = {name: term.weight for name, term in settings.parts.items()}

    def __call__(self, forest: Forest) -> Credited:
        total: Tensor | None = None
        metrics: dict[str, float] = {}
        sources: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            advantage, counted = self._compared(forest, name)
            own = weight * advantage
            total = own if total is None else total + own
            sources[name] = own[:, None]
            metrics |= {
                f"{name}/weight": weight,
                f"{name}/counted": float(counted.float().mean()) if len(counted) else 0.0,
                f"{name}/size": float(own.abs().mean()) if len(own) else 0.0,
            }
        assert total is not None, "at least one part"
        rows = forest.rows()
        if len(sources) > 1:
            metrics |= token_shares(sources, forest.trainable(rows))
        return Credited(spread(total, forest, rows), metrics=metrics)

    def of_part(self, forest: Forest, name: str) -> Credited:
        """One part's advantages alone, unweighted."""
        return Credited(spread(self._compared(forest, name)[0], forest, forest.rows()))

    def _compared(self, forest: Forest, name: str) -> tuple[Float[Tensor, " R"], Bool[Tensor, " R"]]:
        """A part's advantage of each row, and the rows in which it counts."""
        of, rows = self.settings, forest.rows()
        value = row_reward(forest, rows, of.kl_in_reward) if name == OUTCOME else forest.parts.get(name)
        if value is None:  # it abstained in every row
            value = torch.full_like(forest.reward, float("nan"))
        counted = of.parts[name].counts(forest.correct) & value.isfinite()
        relative = partial(group_relative, scale=of.scale, ddof=of.ddof, eps=of.eps)
        return part_advantage(value, forest.group, counted, relative), counted

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        self.step += 1
        parts = self.settings.parts.items()
        self.weights |= {name: term.at(self.step) for name, term in parts if term.end is not None}

    def state_dict(self) -> State:
        return {"step": self.step, "weights": dict(self.weights)}

    def load_state_dict(self, state: State) -> None:
        require_keys("credit.by-part", given=state, needed=self.state_dict())
        self.step, self.weights = int(state["step"]), dict(state["weights"])


def part_advantage(
    value: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    counted: Bool[Tensor, " R"],
    relative: Callable[[Tensor, Tensor], Tensor] = group_relative,
) -> Float[Tensor, " R"]:
    """A part's advantage of each row against the counted rows of its group; 0 in the others.

    Args:
        value: the part, in its own unit; anything where not counted.
        counted: rows that the part has a value in, and that count.
        relative: (value, group) -> advantage.
    """
    if bool(counted.all()):
        return relative(value, group)
    advantage = torch.zeros_like(value)
    advantage[counted] = relative(value[counted], group[counted])
    return advantage
