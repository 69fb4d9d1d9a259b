"""CURE, first stage: sample a group, then resample each from one of its most uncertain tokens on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.needs import Need
from lyceum.core.settings import RolloutSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Origin, Rollout, Sampling
from lyceum.rollout._growth import (
    by_counter,
    end_before,
    entropies,
    extend_to_end,
    model_logprobs,
    together,
)

NOTE = "critical-tokens"


class CriticalTokens(RolloutSettings):
    """A first round from the prompt and a second one from before a critical token of each sample form one group.

    As in the authors' code (bytedance/CURE, CURE_First_Stage), where a forward pass of its own computes the entropy of
    the policy at each token; here the engine reports it with the sample.
    """

    requires: ClassVar = (
        Need("entropy", when=lambda own: own.uncertainty == "entropy"),
        Need("model_logprob", when=lambda own: own.uncertainty != "entropy"),
    )

    sized_by: ClassVar = "samples"

    kind: Literal["critical-tokens"] = "critical-tokens"
    samples: int = Field(16, ge=2)
    """Trajectories per task over both rounds, unless the curriculum sets the number."""
    regenerated: int = Field(3, ge=1)
    """Continuations per first sample; the first round has ``samples // (1 + regenerated)``."""
    candidates: int = Field(20, ge=1)
    """The critical token is drawn uniformly from this many of a sample's most uncertain tokens."""
    uncertainty: Literal["entropy", "surprisal"] = "entropy"
    """What makes a token uncertain: the entropy of the policy before it, as CURE's authors have it, or -log p of the
    token, as TreeRL's, whose expectation that is and which every engine reports."""
    least_characters: int = Field(2, ge=1)
    """Tokens that decode to fewer characters, white space aside, are never critical (so special tokens are not)."""
    prefix: Literal["context", "trained"] = "context"
    """Whether a continuation's copied prefix is part of its prompt, as in the authors' code, or trained too."""
    sampling: Sampling = Sampling()
    """How tokens are sampled in both rounds."""

    @model_validator(mode="after")
    def _first_round_is_not_empty(self) -> CriticalTokens:
        if self.samples <= self.regenerated:
            raise ValueError(
                f"samples: got {self.samples} with regenerated {self.regenerated}, which leaves no first round; "
                "allowed: more than regenerated"
            )
        return self

    def sized(self, n: int) -> CriticalTokens:
        """The same rollout with ``n`` trajectories.

        Raises:
            ValidationError: n is too small for a first round.
        """
        return CriticalTokens.model_validate({**dict(self), "samples": n})

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Mean uncertainty (nats) of the critical tokens, and of all tokens of the same samples."""
        notes = [tree.metadata[NOTE] for tree in trees if NOTE in tree.metadata]
        found = {name: [nats for note in notes for nats in note[name]] for name in ("critical_nats", "all_nats")}
        return {name: sum(nats) / len(nats) for name, nats in found.items() if nats}

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        samples = n or self.samples
        n_first = max(1, samples // (1 + self.regenerated))
        sampling = self.sampling.affordable(start.policy_tokens, context.budget_left // samples)
        first = await context.extend(start, n_first, sampling, keep=True, entropy=self.uncertainty == "entropy")
        places = [self.critical_place(leaf, start, i, context) for i, leaf in enumerate(first)]
        each, more = divmod(samples - n_first, n_first)
        counts = [each + (i < more) for i in range(n_first)]
        drawn = zip(first, places, counts, strict=True)
        beginnings = [(self._beginning(leaf, start, place, context), count) for leaf, place, count in drawn if count]
        # The second round has the whole length again, as in the authors' code, as far as the context leaves it.
        share = context.budget_left // max(1, samples - n_first)
        longest = max(1, min(self.sampling.max_completion_tokens, share))
        requests = [
            (node, n, self.sampling.at_most(min(longest, context.tokens_left(node))))
            for node, n in together(beginnings)
        ]
        again = await extend_to_end(context, requests)
        noted = {"first": n_first, "resampled": len(again), "places": places}
        context.tree.record(NOTE, noted | self._compared(first, places))
        return [*first, *again]

    def critical_place(self, leaf: Node, start: Node, number: int, context: Context) -> int:
        """Token of the completion before which a sample is resampled; the first below ``start`` if no token qualifies.

        Args:
            number: index of the sample in its group, part of the draw's seed.
        """
        begin = len(start.completion_tokens)
        found = most_uncertain(self._uncertain(leaf), self._may_be_critical(leaf, begin, context), self.candidates)
        return by_counter(context, "critical-token", start.address, number).choice(found) if found else begin

    def _uncertain(self, leaf: Node) -> list[float]:
        """Nats of each token of the completion."""
        return entropies(leaf) if self.uncertainty == "entropy" else [-logprob for logprob in model_logprobs(leaf)]

    def _compared(self, leaves: Sequence[Node], places: Sequence[int]) -> dict[str, list[float]]:
        """Nats of each sample's critical token, and its mean over the sample's tokens."""
        nats = [self._uncertain(leaf) for leaf in leaves]
        return {
            "critical_nats": [each[place] for each, place in zip(nats, places, strict=True)],
            "all_nats": [sum(each) / len(each) for each in nats],
        }

    def _may_be_critical(self, leaf: Node, begin: int, context: Context) -> list[bool]:
        tokens = leaf.completion_tokens
        long_enough = {token: len(context.decode([token]).strip()) >= self.least_characters for token in set(tokens)}
        # For a prefix that the policy did not write, its uncertainty is unknown.
        own = [node.origin is Origin.POLICY for node in leaf.path()[1:] for _ in node.tokens]
        return [place > begin and own[place] and long_enough[token] for place, token in enumerate(tokens)]

    def _beginning(self, leaf: Node, start: Node, place: int, context: Context) -> Node:
        begin = len(start.completion_tokens)
        if place == begin:
            return start
        if self.prefix == "trained":
            return end_before(leaf, place, context.decode)
        # A copy that the policy did not write: in the context of what follows, in no loss. The sample itself keeps its
        # own tokens, which are trained.
        copied = start.add(leaf.completion_tokens[begin:place], Origin.PREFIX)
        write_texts([copied], context.decode, terminal=False)
        return copied


def most_uncertain(nats: Sequence[float], allowed: Sequence[bool], most: int) -> list[int]:
    """Positions of the ``most`` highest values among those allowed, highest first; ties go to the earlier.

    Args:
        nats: entropy or -log p of each token.
        allowed: which tokens count.
    """
    places = [place for place, may in enumerate(allowed) if may]
    return sorted(places, key=lambda place: -nats[place])[:most]
