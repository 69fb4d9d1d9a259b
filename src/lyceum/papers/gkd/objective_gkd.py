"""On-policy distillation (GKD): on what the policy itself writes, its distributions are drawn to a teacher's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.types import Batch, FrozenName, Metrics, Objective, Reduction
from lyceum.objective.base import PolicyObjective, Terms, measured
from lyceum.utils.lazy_imports import Tensor, torch

How = Literal["forward", "reverse", "jsd"]


class GKD(Terms):
    """Each token's divergence between the policy's and the teacher's distribution, over the vocabulary or its top k."""

    requires: ClassVar = ("teacher",)

    kind: Literal["gkd"] = "gkd"

    divergence: How = "reverse"
    """``forward``: KL(teacher || policy), which covers all that the teacher says; ``reverse``: KL(policy || teacher),
    which keeps to what it likes; ``jsd``: the generalised Jensen-Shannon divergence between them."""
    beta: float = Field(default=0.5, gt=0, lt=1)
    """Weight of the teacher in the mixture of ``jsd`` (no unit)."""
    top_k: int = Field(default=0, ge=0)
    """Number of tokens compared one by one, all others as one: the teacher's most likely for ``forward``, the policy's
    for ``reverse``. 0 compares the whole vocabulary."""
    reward: float = Field(default=0.0, ge=0)
    """Weight of the policy gradient (advantage times log-probability) beside the divergence; 0 learns from the teacher
    alone."""

    @model_validator(mode="after")
    def _one_support(self) -> GKD:
        if self.top_k and self.divergence == "jsd":
            raise ValueError(f"top_k: got {self.top_k} with divergence 'jsd'; allowed: 0, or 'forward' or 'reverse'")
        return self

    def build(self) -> Objective:
        reductions = (Divergence(self.divergence, self.beta, self.top_k),)
        return PolicyObjective(self, self.surrogate, reductions=reductions)

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        divergence = batch.columns[DIVERGENCE]
        metrics = {
            "teacher/divergence": measured(divergence, batch.mask),
            "teacher/compared_mass": measured(batch.columns[MASS], batch.mask),
        }
        return divergence - self.reward * batch.advantage * batch.logprob, metrics


DIVERGENCE, MASS = "teacher_divergence", "teacher_compared_mass"


@dataclass(frozen=True)
class Divergence(Reduction):
    """Of the policy's and the teacher's distribution; and the teacher's mass on the tokens that are compared."""

    how: How
    beta: float
    top_k: int

    @property
    def models(self) -> frozenset[FrozenName]:
        return frozenset(("teacher",))

    @property
    def old(self) -> bool:
        return False

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> dict[str, Float[Tensor, " k"]]:
        policy, teacher = logits.log_softmax(-1), frozen["teacher"].log_softmax(-1)
        mass = torch.ones_like(policy[:, 0])
        if 0 < self.top_k < policy.shape[1]:
            leading = teacher if self.how == "forward" else policy
            support = leading.topk(self.top_k, dim=-1).indices
            policy, teacher = on_support(policy, support), on_support(teacher, support)
            mass = 1 - teacher[:, -1].exp()
        return {DIVERGENCE: divergence(policy, teacher, self.how, self.beta), MASS: mass.detach()}


def divergence(
    policy: Float[Tensor, "k V"], teacher: Float[Tensor, "k V"], how: How, beta: float = 0.5
) -> Float[Tensor, " k"]:
    """Divergence of two distributions.

        forward:  KL(q || p)        reverse:  KL(p || q)        p: policy, q: teacher
        jsd:      beta KL(q || m) + (1 - beta) KL(p || m),  m = beta q + (1 - beta) p

    Args:
        policy, teacher: log-probabilities, in nats; the policy's with gradient.
        how: as above.
        beta: weight of the teacher in the mixture, no unit.
    Returns:
        Nats; 0 where they are equal.
    Source:
        GKD, arXiv:2306.13649, section 2 and equation 1 (there P is the teacher, Q the student).
    """

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return (p.exp() * (p - q)).sum(-1)

    match how:
        case "forward":
            return kl(teacher, policy)
        case "reverse":
            return kl(policy, teacher)
        case "jsd":
            mixture = torch.logaddexp(teacher + math.log(beta), policy + math.log1p(-beta))
            return beta * kl(teacher, mixture) + (1 - beta) * kl(policy, mixture)


def on_support(logprob: Float[Tensor, "k V"], support: Int[Tensor, "k n"]) -> Float[Tensor, "k n1"]:
    """Log-probabilities of chosen tokens, and, last, of all others together.

    The divergence of two such distributions is at most that of the whole ones, and 0 only where they agree on each
    chosen token.

    Source:
        TRL's DistillationTrainer (``loss_top_k`` with ``loss_add_tail``).
    """
    chosen = logprob.gather(1, support)
    # At least one rounding error of 1, so that its logarithm is finite where the chosen tokens have all the mass.
    rest = (-torch.expm1(chosen.logsumexp(-1, keepdim=True))).clamp(min=torch.finfo(logprob.dtype).eps)
    return torch.cat([chosen, rest.log()], dim=-1)
