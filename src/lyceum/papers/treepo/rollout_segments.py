"""TreePO: a group grows as a tree of fixed-length segments; open paths branch while there is width left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.needs import Need
from lyceum.core.settings import RolloutSettings
from lyceum.core.steps import PARTIAL, write_texts
from lyceum.core.tree import Node
from lyceum.core.types import Context, Rollout, Sampling
from lyceum.rollout._growth import (
    by_counter,
    end_before,
    extend_all,
    model_logprobs,
    repeats,
    together,
)

Reason = Literal["answered", "stop", "depth", "tokens", "repetition", "budget"]
COMPLETE = ("answered", "stop")
"""Reasons after which a trajectory may be cut back and resampled: it ended by itself."""


class Segments(RolloutSettings):
    """Fixed-size segments, at least one per open path and round; freed width goes to the paths that are still open.

    As in the authors' code (recipe/treepo, ``by_fixed_div``), with these differences: the whole completion is searched
    for repetitions and not only the last segment, since segments may be short here; the number of first segments is
    really drawn between two bounds, which the released script sets where the worker does not read them; and open paths
    with the same text are merged into one node with the shares of all, so that no token is computed twice.
    """

    requires: ClassVar = (
        Need("model_logprob", when=lambda own: own.spread != "even" or own.fallback == "least-likely"),
    )

    sized_by: ClassVar = "samples"

    kind: Literal["segments"] = "segments"
    samples: int = Field(16, ge=1)
    """Finished trajectories per task (the tree's width), unless the curriculum sets the number."""
    segment_tokens: int = Field(512, ge=1)
    """Tokens per segment."""
    depth: int | None = Field(default=None, ge=1)
    """Maximum segments per trajectory; null leaves it to ``sampling.max_completion_tokens``."""
    branches: int = Field(2, ge=1)
    """Segments in the next round per path that is open or has just finished."""
    first_branches: tuple[int, int] = (2, 2)
    """Minimum and maximum number of segments in the first round; the number is drawn per task."""
    spread: Literal["even", "likely", "unlikely"] = "even"
    """Which open paths get more segments: all the same (the remainder goes to the last), or by a softmax of their
    log-probability or its negative."""
    spread_by: Literal["path-sum", "path-mean", "segment-mean"] = "path-mean"
    """Log-probability of a path: of all its tokens, their mean, or the mean of its last segment (nats)."""
    spread_temperature: float = Field(1.0, gt=0)
    """Divides the log-probabilities before the softmax (nats)."""
    answer: tuple[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]] | None = None
    """Opening and closing string of the answer: a path is finished once it has both; null: at its end of sequence."""
    repeat_characters: int = Field(32, ge=1)
    """Length of the substring whose repetition ends a path (characters)."""
    repeat_times: int | None = Field(default=8, ge=2)
    """Occurrences of it that end a path; null never ends a path for repetition."""
    fallback: Literal["random", "least-likely", "none"] = "random"
    """Where a finished trajectory is cut back when no path is open and trajectories are missing: at the end of a random
    segment, or before its least likely token; or never, which leaves the group smaller."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; ``max_completion_tokens`` is per trajectory."""

    @model_validator(mode="after")
    def _first_branches_fit(self) -> Segments:
        low, high = self.first_branches
        if not 1 <= low <= high:
            raise ValueError(f"first_branches: got {low} to {high}; allowed: 1 or more, the fewest first")
        return self

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        width = n or self.samples
        first = min(width, by_counter(context, "segments", start.address, "first").randint(*self.first_branches))
        wanted = [(start, first)]
        finished: list[Node] = []
        still: list[Node] = []
        rounds = branches = fallbacks = 0
        while wanted:
            limit = self._limit(context, sum(n for _, n in wanted), begun=rounds > 0)
            if not limit:
                self._close(still, finished)
                break
            rounds += 1
            requests = [(node, n, self.sampling.at_most(min(limit, self._left(node)))) for node, n in together(wanted)]
            drawn = await extend_all(context, requests, keep=self._may_go_on)
            reached = [child for children in drawn for child in children]
            still = [node for node in reached if not self._finished(node, context)]
            ended = [node for node in reached if "finished" in node.stats]
            finished += ended
            missing = width - len(finished)
            if still:
                total = next_budget(missing, len(still), len(ended), self.branches)
                wanted = list(zip(still, self._spread(still, total), strict=True))
                branches += total - len(still)
            else:
                wanted = self._fall_back(context, start, finished, missing, fallbacks)
                fallbacks += bool(wanted)
        reasons = Counter(node.stats["finished"] for node in finished)
        counts = {"rounds": rounds, "branches": branches, "fallbacks": fallbacks}
        context.tree.record("segments", {**counts, "finished": dict(reasons)})
        return finished

    def _finished(self, node: Node, context: Context) -> bool:
        """Whether a path ends with this segment, and if so the reason noted on it."""
        reason = self.why_finished(node, context)
        if reason is not None:
            node.stats["finished"] = reason
        elif node.text.endswith(PARTIAL):
            write_texts([node], context.decode, terminal=False)
        return reason is not None

    def why_finished(self, node: Node, context: Context) -> Reason | None:
        """Why a path ends with this segment; None while it continues."""
        text = node.completion
        if self.repeat_times is not None and repeats(text, self.repeat_characters, self.repeat_times):
            return "repetition"
        if self.answer is not None:
            _, found, rest = text.partition(self.answer[0])
            if found and self.answer[1] in rest:
                return "answered"
        if node.finish == "stop":
            return "stop"
        if not self._left(node) or not context.tokens_left(node):
            return "tokens"
        if self.depth is not None and self._depth(node) >= self.depth:
            return "depth"
        return None

    def _may_go_on(self, node: Node, sampling: Sampling) -> bool:
        """Whether more may be drawn below these segments: not below the last tokens of a path.

        If a path is cut back inside them, before its least likely token, they are computed again up to there.
        """
        return sampling.max_completion_tokens < self._left(node)

    def _depth(self, node: Node) -> int:
        return math.ceil(node.policy_tokens / self.segment_tokens)

    def _left(self, node: Node) -> int:
        return max(0, self.sampling.max_completion_tokens - node.policy_tokens)

    def _limit(self, context: Context, paths: int, *, begun: bool) -> int:
        """Tokens of the next segments: fewer if the task's budget is short, 0 if it is spent."""
        share = context.budget_left // paths
        return min(self.segment_tokens, max(0 if begun else 1, share))

    def _close(self, still: Sequence[Node], finished: list[Node]) -> None:
        """Finish the open paths as they are: the budget is spent."""
        for node in still:
            node.stats["finished"] = "budget"
            finished.append(node)

    def _spread(self, still: Sequence[Node], total: int) -> list[int]:
        if self.spread == "even":
            return spread_evenly(total, len(still))
        sign = 1 if self.spread == "likely" else -1
        value = [sign * self._logprob(node) / self.spread_temperature for node in still]
        highest = max(value)
        return allocate([math.exp(v - highest) for v in value], total)

    def _logprob(self, node: Node) -> float:
        logprobs = node.model_logprob if self.spread_by == "segment-mean" else model_logprobs(node)
        total = sum(logprobs)
        return total if self.spread_by == "path-sum" else total / max(1, len(logprobs))

    def _fall_back(
        self, context: Context, start: Node, finished: Sequence[Node], missing: int, number: int
    ) -> list[tuple[Node, int]]:
        """Nodes to decode from again, ``branches`` times each, until as many paths are open as are missing."""
        if self.fallback == "none" or missing <= 0:
            return []
        again: list[tuple[Node, int]] = []
        candidates = [node for node in finished if node.stats["finished"] in COMPLETE]
        rng = by_counter(context, "segments", start.address, "fallback", number)
        rng.shuffle(candidates)
        for node in candidates or [start]:
            if missing <= 0:
                break
            again.append((self._cut(node, start, rng, context), min(self.branches, missing)))
            missing -= self.branches
        return again

    def _cut(self, node: Node, start: Node, rng: Any, context: Context) -> Node:
        below = node.below(start) if node is not start else []
        if not below:
            return start
        if self.fallback == "random":
            return rng.choice([start, *below[:-1]])
        begin = len(start.completion_tokens)
        logprobs = model_logprobs(node)[begin:]
        return end_before(node, begin + logprobs.index(min(logprobs)), context.decode)


def next_budget(room: int, still: int, ended: int, branches: int) -> int:
    """Number of segments in a tree's next round.

        max(open, min(width - finished, branches * open + branches * finished in this round))

    Args:
        room: width - finished: missing trajectories.
        still: open paths, each of which gets at least one.
        ended: paths that finished in this round; their share goes to the open ones.
        branches: segments per path.
    Source:
        TreePO's code, ``by_fixed_div`` (multimodal-art-projection/TreePO, vllm_rollout_spmd.py).
    """
    return max(still, min(room, branches * (still + ended)))


def spread_evenly(total: int, paths: int) -> list[int]:
    """``total // paths`` each, the remainder to the last one (``fixed_avg`` in TreePO's code)."""
    each, rest = divmod(total, paths)
    return [each] * (paths - 1) + [each + rest]


def allocate(weights: Sequence[float], total: int) -> list[int]:
    """Integer shares in proportion to weights, at least one each, by the largest remainder; ties go to the first.

    Args:
        weights: one per path, none negative, not all 0 (no unit).
        total: sum of the shares, at least the number of weights.
    Raises:
        ValueError: total is smaller than the number of weights.
    """
    free = total - len(weights)
    if free < 0:
        raise ValueError(f"got {total} for {len(weights)} paths; allowed: at least one each")
    scale = free / sum(weights)
    whole = [int(weight * scale) for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: whole[i] - weights[i] * scale)
    for i in by_remainder[: free - sum(whole)]:
        whole[i] += 1
    return [1 + share for share in whole]
