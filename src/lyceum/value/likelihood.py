"""The policy's own likelihood as the value of a path: nothing to train, nothing to load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import ValueSettings
from lyceum.core.tree import Node
from lyceum.models.policy import Policy


class Likelihood(ValueSettings):
    """Length-normalised likelihood of a path under the policy.

    Source: BFS-Prover, arXiv:2502.03438, section 3.1, which ranks a path by its exponent (there a token is a tactic).
    """

    reads: ClassVar[bool] = False
    """The engine's log-probabilities are enough: the path's tokens are not read again."""
    requires: ClassVar = ("model_logprob",)
    own_model: ClassVar[bool] = False

    kind: Literal["likelihood"] = "likelihood"
    length_power: float = Field(default=1.0, ge=0, le=1)
    """Length normalisation: the sum of log-probabilities is divided by the number of tokens to this power: 1 is the
    mean per token, 0 the whole path's likelihood; between them longer paths are favoured less than by the mean."""

    def build(self, policy: Policy, *, seed: int) -> PathLikelihood:
        return PathLikelihood(self.length_power)


class PathLikelihood:
    """It has no state."""

    def __init__(self, length_power: float) -> None:
        self.length_power = length_power

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        return [
            likelihood([value for node in leaf.path()[1:] for value in node.model_logprob], self.length_power)
            for leaf in paths
        ]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("value.likelihood", given=state, needed=())


def likelihood(logprob: Sequence[float], length_power: float) -> float:
    """v = exp(sum_t log p_t / L^a), in 0 .. 1; 1 where nothing is written.

    Args:
        logprob: of each of L tokens, in nats, of the untempered model.
        length_power: a.
    Source:
        BFS-Prover, arXiv:2502.03438, equation 1 (the exponent; a between 0 and 1).
    """
    return math.exp(sum(logprob) / len(logprob) ** length_power) if logprob else 1.0
