"""PAPO: a policy whose answers would change little without the picture is drawn to look at it.

loss = PPO's - perception * KL(policy || masked) + masked_entropy * H(masked)

masked = the policy that is shown the same pictures with most of their patches black
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.core.pictures import id_and_place, is_picture, picture_token
from lyceum.core.types import Batch, FrozenName, Metrics, Objective, TaskSource, ViewedReduction
from lyceum.models.policy import Policy
from lyceum.models.see import Pixels
from lyceum.objective.base import PolicyObjective, measured
from lyceum.objective.kl import kl_estimate
from lyceum.objective.ppo_clip import PPOClip
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.messages import picture_parts
from lyceum.utils.seeds import counter_seed

LOGPROB, ENTROPY = "masked_logprob", "masked_entropy"


class Mask(Settings):
    """Which parts of a picture are black; the same ones whenever it is seen."""

    share: float = Field(default=0.6, gt=0, le=1)
    """Probability of each patch to be black."""
    patch: int = Field(default=14, ge=1)
    """Side of a patch, in pixels."""


class PerceptionAware(PPOClip):
    """The clipped loss of PPO, less the divergence from the policy that is shown masked pictures."""

    kind: Literal["papo"] = "papo"  # pyright: ignore[reportIncompatibleVariableOverride]
    perception: float = Field(0.01, ge=0)
    """Weight of KL(policy || masked), in loss units per nat; it grows without bound if this is too large."""
    masked_entropy: float = Field(0.0, ge=0)
    """Weight of the masked policy's entropy, which is kept low, in loss units per nat; ``entropy_coefficient`` below 0
    keeps the policy's own low (both together are the paper's double entropy loss)."""
    mask: Mask = Mask()
    """How pictures are masked."""
    through_masked: bool = False
    """Whether the masked policy is the current one, with a gradient, as in the paper's equation. Otherwise, as in the
    authors' code, its log-probabilities are those of the step's first weights, and ``masked_entropy`` has no effect."""

    @model_validator(mode="after")
    def _entropy_has_a_gradient(self) -> PerceptionAware:
        if self.masked_entropy and not self.through_masked:
            raise ValueError(
                f"masked_entropy: got {self.masked_entropy} with through_masked=false, where it has no gradient; "
                "allowed: 0, or through_masked=true"
            )
        return self

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not any(picture_parts(source[0].messages)):
            raise RecipeError(
                f"objective.kind: got 'papo', but task {source[0].id!r} shows no picture; allowed: tasks with "
                "pictures, such as kind 'pictures'"
            )

    def build(self) -> Objective:
        masked = MaskedPolicy(self.mask, old=not self.through_masked)
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}), reductions=(masked,))

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        loss, metrics = super().surrogate(batch)
        when = "" if self.through_masked else "old_"
        masked, entropy = batch.columns[when + LOGPROB], batch.columns[when + ENTROPY]
        kl = kl_estimate(batch.logprob, masked, "k3")
        loss = loss - self.perception * kl
        if self.masked_entropy:
            loss = loss + self.masked_entropy * entropy
        return loss, {
            **metrics,
            "perception/kl": measured(kl, batch.mask),
            "perception/likelier_seen": measured(batch.logprob > masked, batch.mask),
            "perception/masked_entropy": measured(entropy, batch.mask),
        }


class MaskedPolicy(ViewedReduction):
    """Log-probability and entropy of each token where the policy is shown masked pictures, in nats.

    Source:
        PAPO, arXiv:2507.06448, and its released code: ``random_patch_blackening`` of verl/trainer/kl_prcp_utils.py,
        the use of ``aug_log_probs`` in verl/workers/actor/dp_actor.py.
    """

    def __init__(self, mask: Mask, *, old: bool) -> None:
        self.mask, self._old = mask, old

    @property
    def models(self) -> frozenset[FrozenName]:
        return frozenset()

    @property
    def old(self) -> bool:
        return self._old

    @property
    def once(self) -> frozenset[str]:
        return frozenset({LOGPROB, ENTROPY} if self._old else ())

    def view(self, policy: Policy) -> Callable[[Sequence[int]], list[int]]:
        if policy.sight is None:
            raise RecipeError("objective.kind: got 'papo', but the model takes no pictures; allowed: one that does")
        pictures, known = policy.sight.pictures, dict[int, int]()

        def masked(id: int) -> int:
            if id not in known:
                known[id] = pictures.changed(id, lambda pixels: masked_pixels(pixels, self.mask, id))
            return known[id]

        def shown(tokens: Sequence[int]) -> list[int]:
            found = ((token, id_and_place(token)) for token in tokens)
            return [picture_token(masked(id), at) if is_picture(token) else token for token, (id, at) in found]

        return shown

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> dict[str, Float[Tensor, " k"]]:
        logprob = logits.log_softmax(-1)
        return {
            LOGPROB: logprob.gather(1, token[:, None]).squeeze(1),
            ENTROPY: -(logprob.exp() * logprob).sum(-1),
        }


def masked_pixels(pixels: Pixels, mask: Mask, id: int) -> Pixels:
    """A picture with black patches, chosen by a generator that is seeded with the picture's id."""
    import numpy as np

    height, width = pixels.shape[:2]
    rows, columns = (-(-side // mask.patch) for side in (height, width))
    black = np.random.default_rng(counter_seed("mask", id)).random((rows, columns)) < mask.share
    whole = black.repeat(mask.patch, 0).repeat(mask.patch, 1)[:height, :width]
    return np.where(whole[..., None], np.uint8(0), pixels)
