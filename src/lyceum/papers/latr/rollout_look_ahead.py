"""LATR: branch where two tokens are about equally likely, look ahead along both, drop branches that stay similar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.settings import RolloutSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node
from lyceum.core.types import Context, Rollout, Sampling
from lyceum.rollout._growth import end_before, extend_all, extend_to_end

MATHEMATICAL = "+-*/\\<>=()[]{}_^&%$0123456789"
"""Symbols at which the authors' code never drops a branch."""


@dataclass(eq=False)
class Path:
    """One trajectory of the tree in its branching phase.

    Attributes:
        tip: its last node so far.
        above: the path that it branched from; None for the first one.
        birth: position in the completion (from 0) of its first own token.
        symbol: the other path's token at that position, decoded.
        looked: number of look-aheads at which it has been compared.
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
        return len(self.tip.completion_tokens)

    def ends_by(self, place: int) -> bool:
        return not self.open and self.tokens <= place


class LookAhead(RolloutSettings):
    """A group of diverse trajectories: branches open at uncertain tokens and stay only if they diverge.

    In the branching phase every path follows the most likely token, and a second path opens with the runner-up where
    that is likely enough and close behind, both as the engine reports them (as in the authors' code, starreeze/latr).
    Paths grow to the next look-ahead in rounds and not token by token: slots freed by pruning can be used from the next
    round on. Where the group stays too small, the authors repeat its first row; here the missing rows are independent
    samples.
    """

    requires: ClassVar = ("top_logprobs",)

    sized_by: ClassVar = "samples"

    kind: Literal["look-ahead"] = "look-ahead"
    samples: int = Field(8, ge=1)
    """Trajectories per task, unless the curriculum sets the number."""
    least_probability: float = Field(0.25, gt=0, lt=0.5)
    """A branch opens where the runner-up's probability is above this (no unit; model at temperature 1)."""
    largest_gap: float = Field(0.15, gt=0, le=1)
    """... and less than this below the most likely token's (no unit)."""
    look_aheads: tuple[int, ...] = (20, 30, 50)
    """Numbers of tokens after which a branch is compared with the path it branched from, ascending."""
    least_distance: float = Field(0.4, ge=0, le=1)
    """A branch is dropped if its tokens' edit distance to the other path's, divided by their number, is below this (no
    unit)."""
    keep_at: str = MATHEMATICAL
    """A branch stays, however similar, if the other path's token there consists of these characters (in the authors'
    code also if it is white space only)."""
    branching_tokens: int = Field(512, ge=1)
    """Branches open only among this many first tokens of a completion; the rest is sampled."""
    shares: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    """(progress of the stage, share of the group that is grown by branching from then on), ascending; the others are
    plain samples."""
    sampling: Sampling = Sampling()
    """How all other tokens are sampled."""

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

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        samples = n or self.samples
        share = [share for begin, share in self.shares if begin <= context.progress][-1]
        wanted = round(samples * share)
        paths, opened, dropped = await self._branch(start, wanted, context) if wanted else ([], 0, 0)
        counts = {"wanted": wanted, "grown": len(paths), "opened": opened, "dropped": dropped}
        context.tree.record("look-ahead", counts)
        return await self._finish(start, paths, samples, context)

    async def _branch(self, start: Node, wanted: int, context: Context) -> tuple[list[Path], int, int]:
        """The tree's paths once the group is full and all branches are compared, or no more branches may open."""
        paths = [Path(start, None)]
        horizon = len(start.completion_tokens)
        longest = self.sampling.max_completion_tokens - start.policy_tokens
        end = horizon + min(self.branching_tokens, longest, context.tokens_left(start))
        opened = dropped = 0
        # Every path to the next look-ahead, and the runner-up that it begins with.
        dearest = wanted * (self.look_aheads[0] + 1)
        while horizon < end and any(path.open for path in paths) and context.budget_left >= dearest:
            horizon = min(end, horizon + self.look_aheads[0])
            grew = True
            while grew:
                fresh = await self._grow_to(horizon, paths, context)
                born = self._open_branches(fresh, paths, wanted, context)
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
        """Grow every open path to ``horizon`` tokens; returns each with the position of its first new token."""
        followed = self.sampling.model_copy(update={"temperature": 0.0})
        growing = [path for path in paths if path.open and path.tokens < horizon]
        begin = [path.tokens for path in growing]
        requests = [(path.tip, 1, followed.at_most(horizon - at)) for path, at in zip(growing, begin, strict=True)]
        for path, (child,) in zip(growing, await extend_all(context, requests, top=2), strict=True):
            write_texts([child], context.decode, terminal=child.finish == "stop")
            path.tip = child
        return list(zip(growing, begin, strict=True))

    def _open_branches(
        self, fresh: Sequence[tuple[Path, int]], paths: Sequence[Path], wanted: int, context: Context
    ) -> list[Path]:
        """New paths at the uncertain new tokens, earliest first, as many as the group has free slots."""
        points = sorted(
            (place, rank, runner_up)
            for rank, (path, begin) in enumerate(fresh)
            for place, runner_up in self._unsure(path.tip, begin)
        )
        born: list[Path] = []
        for place, rank, (token, logprob) in points[: max(0, wanted - len(paths))]:
            path = fresh[rank][0]
            head = end_before(path.tip, place, context.decode)
            other = context.choose(head, token, logprob, self.sampling)
            born.append(Path(other, path, place, context.decode([path.tip.completion_tokens[place]])))
        return born

    def _unsure(self, tip: Node, begin: int) -> list[tuple[int, tuple[int, float]]]:
        """Positions in the completion (from 0) of the node's tokens at which a second token is likely enough, and that
        token with its log-probability."""
        found: list[tuple[int, tuple[int, float]]] = []
        for place, (first, second) in enumerate(tip.top, begin):
            likely, behind = math.exp(first[1]), math.exp(second[1])
            if behind > self.least_probability and likely - behind < self.largest_gap:
                found.append((place, second))
        return found

    def _compare(self, paths: Sequence[Path]) -> None:
        """Drop branches that stayed similar to the path they branched from, at each look-ahead that both have reached.

        As in the authors' code, a pair is not compared if either ended before it, and branches of a dropped path are
        dropped.
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

    async def _finish(self, start: Node, paths: Sequence[Path], samples: int, context: Context) -> list[Node]:
        """Sample every open path to its end, and the missing trajectories from the start.

        Each has an equal share of what is left of the task's budget; paths for which none is left stay as they are.
        """
        limit = self.sampling.max_completion_tokens
        requests, done = [], []
        share = context.budget_left // max(samples - sum(not path.open for path in paths), 1)
        for path in paths:
            left = min(limit - path.tip.policy_tokens, context.tokens_left(path.tip), share)
            if path.open and left > 0 and path.tip is not start:
                requests.append((path.tip, 1, self.sampling.at_most(left)))
            elif path.tip is not start:
                done.append(path.tip)
        missing = samples - len(requests) - len(done)
        if missing:
            requests.append((start, missing, self.sampling.at_most(max(1, min(limit - start.policy_tokens, share)))))
        return [*done, *await extend_to_end(context, requests)]


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Least number of insertions, deletions and replacements that turn ``a`` into ``b`` (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]
