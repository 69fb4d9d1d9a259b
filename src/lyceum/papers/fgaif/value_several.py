"""Several value models of one path, such as one for each kind of error (FGAIF): their rewards are added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.settings import ValueSettings
from lyceum.core.tree import Node
from lyceum.core.types import Judgement, MarkedPath, State
from lyceum.models.policy import Policy
from lyceum.utils.numbers import mean
from lyceum.value.model import PathModel, PathValues


class Several(ValueSettings):
    """Models that earlier stages trained, each on labels of its own. They stay as they are.

        reward = sum_k weight_k (2 v_k - 1)

    where v_k in 0 .. 1 is the k-th model's value of a step, or of the path's end: 1 is fully paid, 0 costs as much, and
    1/2, with which a model says nothing, is worth nothing.

    Source:
        FGAIF, arXiv:2404.05046, as in the authors' code: a model for each kind of error, whose verdicts of 1, 0 and -1
        on each segment are added up. Theirs are the likeliest of three classes; these are expectations.
    """

    gives: ClassVar = ("judgements",)

    kind: Literal["several"] = "several"
    models: tuple[PathModel, ...] = Field(min_length=1, max_length=16)
    """The models, as of kind ``model``: ``from_stage: NAME`` or ``path: FOLDER``, with ``loss`` mse or bce."""
    weights: tuple[float, ...] = ()
    """Weight of each model's rewards; empty: all 1."""

    @model_validator(mode="after")
    def _gives_probabilities(self) -> Several:
        if self.weights and len(self.weights) != len(self.models):
            raise ValueError(f"weights: got {len(self.weights)} for {len(self.models)} models; allowed: one for each")
        for number, model in enumerate(self.models):
            if model.untrained:
                raise ValueError(f"models.{number}: got neither from_stage nor path; allowed: a model that is trained")
            if model.loss not in ("mse", "bce"):
                raise ValueError(
                    f"models.{number}.loss: got {model.loss!r}, whose rewards have no bounds; allowed: mse or bce"
                )
        return self

    def handed_on(self, left_by: Callable[[str], Path]) -> Self:
        return self.model_copy(update={"models": tuple(model.handed_on(left_by) for model in self.models)})

    def build(self, policy: Policy, *, seed: int) -> SeveralValues:
        weights = self.weights or (1.0,) * len(self.models)
        return SeveralValues([model.build(policy, seed=seed) for model in self.models], weights)


class SeveralValues:
    def __init__(self, models: Sequence[PathValues], weights: Sequence[float]) -> None:
        self.models, self.weights = models, weights

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        return [mean(values) for values in zip(*(model(paths) for model in self.models), strict=True)]

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        return [together(said, self.weights) for said in zip(*(m.judge(paths) for m in self.models), strict=True)]

    def state_dict(self) -> State:
        return {"models": [model.state_dict() for model in self.models]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("value.several", given=state, needed=self.state_dict())
        for model, own in zip(self.models, state["models"], strict=True):
            model.load_state_dict(own)


def together(said: Sequence[Judgement], weights: Sequence[float]) -> Judgement:
    """The sum of what the models say of a path, and each one's mean over its steps as the parts 1, 2, ...

        sum_k w_k (2 v_k - 1)

    Args:
        said: each model's values, 0 to 1.
    """
    steps = [
        sum(w * (2 * v - 1) for w, v in zip(weights, values, strict=True))
        for values in zip(*(judged.steps for judged in said), strict=True)
    ]
    outcome = sum(w * (2 * judged.outcome - 1) for w, judged in zip(weights, said, strict=True))
    parts = {str(n): mean([2 * v - 1 for v in judged.steps]) for n, judged in enumerate(said, 1) if judged.steps}
    return Judgement(outcome, steps, parts)
