"""ARPO, AEPO: turns that branch after an environment's answer, where it left the policy uncertain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.tree import Node
from lyceum.rollout._growth import by_counter
from lyceum.rollout.turns import Conversation, Turns, TurnStart
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

NOTE = "branching-turns"


class BranchingTurns(Turns):
    """Some trajectories are sampled whole, the others branch off from them below the environment's answers.

    Whether one does at an answer is drawn, the likelier the more uncertain the policy's first tokens below the answer
    are, compared with the trajectory's first. Trajectories that are still missing when none is open are sampled whole.
    The two papers' authors decide before the answer, by the turn that called; here, as the papers say, after it.
    """

    turns_branch: ClassVar = True
    requires: ClassVar = (Need("entropy", when=lambda own: own.reads_entropy),)

    kind: Literal["branching-turns"] = "branching-turns"  # pyright: ignore[reportIncompatibleVariableOverride]
    samples: int = Field(default=16, ge=1)
    """Trajectories per task, unless the curriculum sets the number."""
    whole: int | None = Field(default=8, ge=1)
    """Trajectories that are sampled whole (ARPO's N); null: by the task's entropies (AEPO), which a first trajectory
    shows, from which none branches."""
    sensitivity: float = Field(default=0.5, ge=0, le=1e6)
    """How much that number follows the entropies, where ``whole`` is null (per nat; AEPO's beta)."""
    branches: int = Field(default=1, ge=1)
    """Trajectories that branch off where one does."""
    first_tokens: int = Field(default=20, ge=1)
    """Number of a turn's first tokens whose mean entropy counts."""
    entropy_weight: float = Field(default=0.2, ge=0, le=1e6)
    """What an answer that raised the entropy adds to the probability of a branch (per nat); 0: entropies are not
    read."""
    threshold: float = Field(default=0.5, gt=0, le=1)
    """What a random number from 0 to 1 must reach, together with the rise in entropy."""
    penalty: float = Field(default=0.0, ge=0, le=1)
    """Share that is taken from both for each round before in which the task's trajectories branched, without a round
    between (AEPO: 0.05)."""

    @property
    def reads_entropy(self) -> bool:
        return self.entropy_weight > 0 or self.whole is None

    async def talked(self, talk: Conversation, samples: int) -> list[Node]:
        """Notes on the tree how many trajectories are whole, at how many answers one might have branched, how many did,
        at how many the entropy made the difference, and how many the penalty held back."""
        context = talk.context
        [(talk.begin, _)] = await talk.begins(1)
        finished: list[Node] = []
        whole = min(samples, self.whole or 1)
        if self.whole is None:
            finished, whole = await self.tried(talk, samples)
        counts = {"whole": whole, "answers": 0, "branches": 0, "by_entropy": 0, "held_back": 0}
        begun, rounds_in_a_row = whole, 0
        going = await self.extend(talk, [Wanted(talk.begin, whole - len(finished))])
        while going or begun < samples:
            wanted: list[Wanted] = []
            for turn in going:
                if begun == samples or turn.rise is None:
                    continue
                chance = by_counter(context, NOTE, turn.node.address).random()
                branches = self.branches_off(chance, turn.rise, rounds_in_a_row)
                counts["answers"] += 1
                counts["by_entropy"] += branches != self.branches_off(chance, 0.0, rounds_in_a_row)
                counts["held_back"] += branches != self.branches_off(chance, turn.rise, 0)
                if branches:
                    wanted.append(Wanted(turn.place, min(self.branches, samples - begun), turn.first, branch=True))
                    begun += wanted[-1].number
            rounds_in_a_row = rounds_in_a_row + 1 if wanted else 0
            counts["branches"] += sum(each.number for each in wanted)
            after = await gather(talk.after(turn.place, turn.node) for turn in going)
            finished += [turn.node for turn, place in zip(going, after, strict=True) if place is None]
            on = [Wanted(place, 1, turn.first) for turn, place in zip(going, after, strict=True) if place is not None]
            if not wanted and not on and begun < samples:
                on, begun = [Wanted(talk.begin, samples - begun)], samples
            going = await self.extend(talk, [*on, *wanted])
        context.tree.record(NOTE, counts)
        return finished

    async def tried(self, talk: Conversation, samples: int) -> tuple[list[Node], int]:
        """A first trajectory, and how many to sample whole by its entropies, itself included."""
        (going,) = await self.extend(talk, [Wanted(talk.begin, 1)])
        turns = [going]
        while (place := await talk.after(turns[-1].place, turns[-1].node)) is not None:
            turns += await self.extend(talk, [Wanted(place, 1, going.first)])
        below = [going.first + turn.rise for turn in turns if turn.rise is not None]
        rise = mean(below) - going.first if below else 0.0
        return [turns[-1].node], whole_samples(samples, -rise, self.sensitivity)

    async def extend(self, talk: Conversation, wanted: Sequence[Wanted]) -> list[Going]:
        asked = [each for each in wanted if each.number]
        drawn = await gather(talk.extend(each.place, each.number, entropy=self.reads_entropy) for each in asked)
        return [self.going(each, node) for each, nodes in zip(asked, drawn, strict=True) for node in nodes]

    def going(self, wanted: Wanted, node: Node) -> Going:
        nats = mean(node.entropy[: self.first_tokens]) if node.entropy else 0.0
        first = nats if wanted.first is None else wanted.first
        rise = None if wanted.first is None or wanted.branch else nats - first
        return Going(wanted.place, node, first, rise)

    def branches_off(self, chance: float, rise: float, rounds_in_a_row: int) -> bool:
        """Whether a trajectory branches where its entropy has risen.

            (u + weight (H_t - H_1)) max(0, 1 - penalty l) >= threshold

        Without a penalty the probability is 1 - threshold + weight (H_t - H_1).

        Args:
            chance: u, a random number from 0 to 1.
            rise: H_t - H_1, nats: mean entropy of the first tokens below the answer, and of the trajectory's first.
            rounds_in_a_row: l, the rounds just before in which the task's trajectories branched.
        Source:
            ARPO, arXiv:2507.19849; RUC-NLPIR/ARPO, ``vllm_rollout_with_tools.py``, without a penalty; AEPO,
            arXiv:2510.14545, the same file of its code. There H is the sum over 20 tokens and the 10 most likely words
            of each, divided by the logarithm of the vocabulary's size.
        """
        return (chance + self.entropy_weight * rise) * max(0.0, 1 - self.penalty * rounds_in_a_row) >= self.threshold


@dataclass(frozen=True)
class Wanted:
    """Turns to be sampled at a place.

    Attributes:
        number: how many.
        first: mean entropy of the first tokens of the trajectory's first turn (nats); None where this is it.
        branch: whether they branch off from a turn at the same place.
    """

    place: TurnStart
    number: int
    first: float | None = None
    branch: bool = False


@dataclass(frozen=True)
class Going:
    """A turn that was sampled.

    Attributes:
        first: as in :class:`Wanted`.
        rise: mean entropy of its first tokens minus ``first`` (nats); None where none may branch off from it.
    """

    place: TurnStart
    node: Node
    first: float
    rise: float | None


def whole_samples(samples: int, difference: float, sensitivity: float) -> int:
    """How many trajectories are sampled whole.

        m = floor(k / (1 + exp(-beta (H_root - H_tool)))) + 1        at most k

    Args:
        samples: k.
        difference: H_root - H_tool, nats: mean entropy of the first tokens below the question, and that below the
            environment's answers, averaged.
        sensitivity: beta, per nat.
    Source:
        AEPO, arXiv:2510.14545 (entropy pre-monitoring: m = k sigma(beta (H_root - H_tool))), rounded as in its code.
    """
    # exp overflows above 709; the share is then 0 or 1 either way.
    share = 1 / (1 + math.exp(min(700.0, max(-700.0, -sensitivity * difference))))
    return min(samples, int(samples * share) + 1)
