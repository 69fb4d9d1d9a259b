"""LATR: branch where two tokens are about as likely, look ahead along both, drop the branch that goes the same way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.settings import RolloutSettings, Size
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Rollout, Sampling, Task
from lyceum.rollout._growth import at_most, drawn_below, edit_distance, end_before, extend_all, extend_to_end

MATHEMATICAL = "+-*/\\<>=()[]{}_^&%$0123456789"
"""Symbols at which the authors' code never drops a branch."""

EVEN = 10.0
"""Temperature at which the runner-up is looked for: the two likeliest tokens then come about as often."""
SHARPEST = 12.0
"""Largest log-odds (nats) of one of two tokens from whose float32 logarithm those of the other one still follow."""


@dataclass(eq=False)
class Path:
    """One trajectory of the tree while it branches.

    Attributes:
        tip: its last node so far.
        above: the path that it left; None for the first one.
        birth: place of the first token that is its own, the completion's first is 0.
        symbol: what the other path has in that place, decoded.
        looked: look-aheads that it has been compared at.
    """

    tip: Node
    above: Path | None
    birth: int = 0
    symbol: str = ""
    kept: bool = True
    looked: int = 0

    @property
    def open(self) -> bool:
        return self.tip.finish != "stop"

    @property
    def tokens(self) -> int:
        return drawn_below(self.tip)

    def ends_by(self, place: int) -> bool:
        return not self.open and self.tokens <= place


class LookAhead(RolloutSettings):
    """A group that differs by trajectory: branches open at unsure tokens and stay only if they lead somewhere else.

    While it branches, every path follows the likeliest token, and a second path opens with the runner-up where that is
    likely enough and close behind. The authors read both from the logits (starreeze/latr). Here the engine says only
    what it drew; so paths are drawn from the two likeliest tokens at a low temperature, from which both of their
    probabilities follow (:func:`runner_up`), and the runner-up is drawn until it comes. A path may thus now and then
    take the second likeliest of two tokens that are nearly as likely. Paths grow to the next look-ahead in rounds and
    not token by token: width that pruning frees is there from the next round on. Where the group stays too small, the
    authors write its first row several times; here its missing rows are samples of their own.
    """

    piecewise: ClassVar[bool] = True

    kind: Literal["look-ahead"] = "look-ahead"
    samples: int = Field(8, ge=1)
    """Trajectories a task, where the curriculum does not say how many."""
    least_probability: float = Field(0.25, gt=0, lt=0.5)
    """A branch opens where the runner-up is likelier than this (no unit; of the model at temperature 1)."""
    largest_gap: float = Field(0.15, gt=0, le=1)
    """... and less than this behind the likeliest token (no unit)."""
    look_aheads: tuple[int, ...] = (20, 30, 50)
    """Tokens after which a branch is compared with the path it left, rising."""
    least_distance: float = Field(0.4, ge=0, le=1)
    """A branch is dropped whose tokens since it opened have a smaller edit distance to the other path's, divided by
    their number (no unit)."""
    keep_at: str = MATHEMATICAL
    """A branch stays, however similar, where the other path's token there consists of these characters (in the authors'
    code also where it is white space alone)."""
    branching_tokens: int = Field(512, ge=1)
    """Branches open among this many first tokens of a completion; the rest is sampled."""
    shares: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    """(progress of the stage, share of the group that grows so from then on), rising; the others are plain samples."""
    branch_temperature: float = Field(0.1, gt=0, le=1)
    """Temperature at which paths follow the likelier of two tokens while branches open; towards 0 it is greedy."""
    tries: int = Field(8, ge=1)
    """Draws of one token to find the runner-up; a branch that none of them begins does not open."""
    sampling: Sampling = Sampling()
    """How everything else is drawn."""

    @field_validator("look_aheads")
    @classmethod
    def _rising(cls, look_aheads: tuple[int, ...]) -> tuple[int, ...]:
        if not look_aheads or look_aheads[0] < 1 or list(look_aheads) != sorted(set(look_aheads)):
            raise ValueError(f"look_aheads: got {list(look_aheads)}; allowed: numbers of 1 or more, rising")
        return look_aheads

    @field_validator("shares")
    @classmethod
    def _shares_fit(cls, shares: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        begins = [begin for begin, _ in shares]
        if not shares or begins[0] != 0 or begins != sorted(set(begins)) or not all(0 <= s <= 1 for _, s in shares):
            raise ValueError(
                f"shares: got {[list(pair) for pair in shares]}; allowed: (progress, share) from progress 0 on, "
                "progress rising, shares from 0 to 1"
            )
        return shares

    @model_validator(mode="after")
    def _runner_up_can_be_told(self) -> LookAhead:
        log_odds = math.log1p(self.largest_gap / self.least_probability)
        if log_odds > SHARPEST * self.branch_temperature:
            raise ValueError(
                f"branch_temperature: got {self.branch_temperature}, at which a runner-up of probability "
                f"{self.least_probability} that is {self.largest_gap} behind cannot be told from none; allowed: "
                f"{math.ceil(100 * log_odds / SHARPEST) / 100} or more"
            )
        return self

    @property
    def size(self) -> Size:
        return Size("samples", self.samples)

    def sized(self, n: int) -> LookAhead:
        """The same rollout with ``n`` trajectories."""
        return self.model_copy(update={"samples": n})

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, task: Task, context: Context) -> Tree:
        tree, samples = context.tree(task), task.samples or self.samples
        share = [share for begin, share in self.shares if begin <= context.progress][-1]
        wanted = round(samples * share)
        paths, opened, dropped = await self._branch(tree.root, wanted, context) if wanted else ([], 0, 0)
        leaves = await self._finish(tree.root, paths, samples, context)
        tree.chosen = leaves
        tree.metadata["look_ahead"] = {"wanted": wanted, "grown": len(paths), "opened": opened, "dropped": dropped}
        await context.grade(leaves)
        return tree

    async def _branch(self, root: Node, wanted: int, context: Context) -> tuple[list[Path], int, int]:
        """The paths of the tree once it is full and compared, or has grown as far as branches may open."""
        paths = [Path(root, None)]
        end = min(self.branching_tokens, self.sampling.max_completion_tokens, context.tokens_left(root))
        opened = dropped = horizon = 0
        # Every path to the next look-ahead, and a runner-up looked for wherever there is room for a branch.
        dearest = wanted * (self.look_aheads[0] + self.tries)
        while horizon < end and any(path.open for path in paths) and context.budget_left >= dearest:
            horizon = min(end, horizon + self.look_aheads[0])
            grew = True
            while grew:
                fresh = await self._grow_to(horizon, paths, context)
                born = await self._open_branches(fresh, paths, wanted, context)
                opened += len(born)
                paths += born
                grew = any(path.open and path.tokens < horizon for path in born)
            before = len(paths)
            self._compare(paths)
            paths = [path for path in paths if path.kept]
            dropped += before - len(paths)
            if len(paths) == wanted and all(
                path.above is None or path.looked == len(self.look_aheads) for path in paths
            ):
                break
        return paths, opened, dropped

    async def _grow_to(self, horizon: int, paths: Sequence[Path], context: Context) -> list[tuple[Path, int]]:
        """Every open path grown to so many tokens; returns each with the place from which its tokens are new."""
        followed = self.sampling.model_copy(
            update={"temperature": self.branch_temperature, "top_k": 2, "top_p": 1.0, "min_p": 0.0}
        )
        growing = [path for path in paths if path.open and path.tokens < horizon]
        begin = [path.tokens for path in growing]
        asked = [(path.tip, 1, at_most(followed, horizon - at)) for path, at in zip(growing, begin, strict=True)]
        for path, (child,) in zip(growing, await extend_all(context, asked), strict=True):
            write_texts([child], context.decode, terminal=child.finish == "stop")
            path.tip = child
        return list(zip(growing, begin, strict=True))

    async def _open_branches(
        self, fresh: Sequence[tuple[Path, int]], paths: Sequence[Path], wanted: int, context: Context
    ) -> list[Path]:
        """New paths at the unsure ones of the new tokens, the earliest first, as many as the group has room for."""
        points = sorted(
            ((place, rank) for rank, (path, begin) in enumerate(fresh) for place in self._unsure(path.tip, begin)),
        )
        points = points[: max(0, wanted - len(paths))]
        chosen = [(fresh[rank][0], place) for place, rank in points]
        heads = [end_before(path.tip, place, context.decode) for path, place in chosen]
        two = Sampling(temperature=EVEN, top_k=2, max_completion_tokens=1, stop_token_ids=self.sampling.stop_token_ids)
        drawn = await extend_all(context, [(head, self.tries, two) for head in heads])
        born: list[Path] = []
        for (path, place), head, tried in zip(chosen, heads, drawn, strict=True):
            taken = path.tip.completion_tokens[place]
            other = next((node for node in tried if node.tokens[0] != taken), None)
            head.children = [child for child in head.children if child is other or child not in tried]
            if other is not None:
                write_texts([other], context.decode, terminal=other.finish == "stop")
                born.append(Path(other, path, place, context.decode([taken])))
        return born

    def _unsure(self, tip: Node, begin: int) -> list[int]:
        """Places of the node's tokens, the completion's first is 0, at which a second token is likely enough."""
        pairs = zip(tip.behaviour_logprob, tip.model_logprob, strict=True)
        found: list[int] = []
        for place, (behaviour, model) in enumerate(pairs, begin):
            likely = sorted((math.exp(model), runner_up(behaviour, model, self.branch_temperature)))
            if likely[0] > self.least_probability and likely[1] - likely[0] < self.largest_gap:
                found.append(place)
        return found

    def _compare(self, paths: Sequence[Path]) -> None:
        """Drop branches that went the same way as the path that they left, at each look-ahead that both have reached.

        Not where either of them has ended within it; what left a dropped path goes with it; as in the authors' code.
        """
        tokens = {path: path.tip.completion_tokens for path in paths}
        for path in paths:
            if path.above is None:
                continue
            path.kept = path.above.kept
            for length in self.look_aheads[path.looked :]:
                until = path.birth + length
                if path.ends_by(until) or path.above.ends_by(until):
                    path.looked = len(self.look_aheads)
                    break
                if not path.kept or min(path.tokens, path.above.tokens) < until:
                    break
                path.looked += 1
                own, other = (tokens[one][path.birth : until] for one in (path, path.above))
                if self._same_way(own, other, path.symbol):
                    path.kept = False
                    path.tip.stats["dropped"] = length

    def _same_way(self, own: Sequence[int], other: Sequence[int], symbol: str) -> bool:
        if edit_distance(own, other) / len(own) >= self.least_distance:
            return False
        symbol = symbol.strip()
        return not symbol or any(character not in self.keep_at for character in symbol)

    async def _finish(self, root: Node, paths: Sequence[Path], samples: int, context: Context) -> list[Node]:
        """Sample every open path to its end, and whatever the group lacks from the prompt.

        Each has an equal share of what is left of the task's budget; paths for which none is left stay as they are.
        """
        limit = self.sampling.max_completion_tokens
        asked, done = [], []
        share = context.budget_left // max(samples - sum(not path.open for path in paths), 1)
        for path in paths:
            left = min(limit - path.tokens, context.tokens_left(path.tip), share)
            if path.open and left > 0 and path.tip is not root:
                asked.append((path.tip, 1, at_most(self.sampling, left)))
            elif path.tip is not root:
                done.append(path.tip)
        missing = samples - len(asked) - len(done)
        if missing:
            asked.append((root, missing, at_most(self.sampling, min(limit, max(1, share)))))
        return [*done, *await extend_to_end(context, asked)]


def runner_up(behaviour_logprob: float, model_logprob: float, temperature: float) -> float:
    """Probability of the other one of the two likeliest tokens, from how one of them was drawn.

        b = p^(1/T) / (p^(1/T) + q^(1/T)),  so  q = p * ((1 - b) / b)^T

    Args:
        behaviour_logprob: log b (nats), of the token drawn from the two likeliest at temperature T.
        model_logprob: log p (nats), of the same token in the model's own distribution.
        temperature: T.
    Returns:
        q, without unit; 0 where b is 1 to the last bit: the other one is out of reach then.
    """
    if behaviour_logprob >= 0:
        return 0.0
    log_odds = behaviour_logprob - math.log(-math.expm1(behaviour_logprob))
    return math.exp(model_logprob - temperature * log_odds)
