"""Tree search guided by a value model: MCTS* of ReST-MCTS*, and VM-MCTS of ReST-RL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.settings import Composition
from lyceum.core.steps import grow, split, step_ends, write_texts
from lyceum.core.tree import Node
from lyceum.core.types import Context
from lyceum.papers.rest_mcts._value_tree import (
    ValuedStep,
    back_up_children,
    back_up_sum,
    hide,
    move,
    outcomes,
    smoothed_uct,
    ucb,
)
from lyceum.rollout._growth import extend_to_end
from lyceum.rollout._search import SearchSettings
from lyceum.utils.numbers import evenly


class ValueMCTS(SearchSettings):
    """Expands the steps of highest value, by a value model; the verifier grades only after the search.

    Source: ``simulate: greedy`` is MCTS*, arXiv:2406.03816, section 3.2 and appendix C; ``simulate: completions`` is
    VM-MCTS, arXiv:2508.19576, section 3.2 and appendix; both with what their released code does. Ties go to the
    first; the code draws one. A path is finished at its end of sequence; MCTS*'s code also finishes any path of value
    0.9. Where VM-MCTS takes its values from the verifier, its code continues with the first three new steps; here with
    all.
    """

    test_time: ClassVar[Mapping[str, Any]] = {"believe": "value"}
    requires: ClassVar = (
        Need("verifier", when=lambda own: own.believe != "value"),
        Need(
            "value",
            when=lambda own: own.believe == "value",
            line="rollout.kind: got 'value-mcts', but the stage has no value model to ask; allowed: a stage with "
            "`value`, or rollout.believe 'outcome' with rollout.simulate 'completions'",
        ),
    )

    sized_by = "iterations"
    kind: Literal["value-mcts"] = "value-mcts"
    iterations: int = Field(default=20, ge=1)
    """Iterations of select, expand, simulate and back up."""
    width: int = Field(default=3, ge=1)
    """Steps drawn per expansion; one of those with the same tokens is kept."""
    keep: int | None = Field(default=None, ge=1)
    """Expandable steps per node, those of highest value; null keeps all."""
    believe: Literal["value", "outcome"] = "value"
    """Source of a step's value: the value model, or the verifier's outcome of completions drawn through it, for a
    search without a value model yet; ``outcome`` needs ``simulate: completions``."""
    simulate: Literal["greedy", "completions", "none"] = "greedy"
    """``greedy`` looks a few steps ahead of the best new step and discards them; ``completions`` draws every new step
    as the first of a whole completion, which is a trajectory of the tree."""
    forward_steps: int = Field(default=3, ge=1)
    """For ``greedy``: number of steps to look ahead."""
    forward_width: int = Field(default=1, ge=1)
    """For ``greedy``: steps drawn at each of them, of which the one of highest value is continued."""
    forward_share: float = Field(default=0.5, ge=0, le=1)
    """For ``greedy``: weight (alpha) of the highest value met ahead in the new step's value; the rest is its own."""
    selection: Literal["ucb", "smoothed"] = "ucb"
    """Selection score: V + c sqrt(2 ln N / n), with ``unvisited`` for new steps, or smoothed,
    V + c sqrt((1 + ln N) / (n + smoothing))."""
    exploration: float = Field(default=0.7, ge=0)
    """c, in the unit of a value: 0.7 in MCTS*'s code, 0.1 to 0.2 in VM-MCTS's."""
    unvisited: float = Field(default=1.0, ge=0)
    """For ``ucb``: bonus added to the value of an unvisited step."""
    smoothing: float = Field(default=0.1, gt=0)
    """For ``smoothed``: constant added to each step's visits."""
    enough: float | None = Field(default=None, ge=0, le=1)
    """Value of a selected finished path at which the search ends; null runs all iterations, as for collecting data."""

    trajectories: int | None = Field(default=None, ge=1)
    """Finished trajectories after which the search ends; if some are missing after all iterations, the unfinished paths
    of highest value are drawn to their ends. null runs all iterations, and draws one if none has finished."""

    def sized(self, n: int) -> ValueMCTS:
        """The same search for about ``n`` trajectories: ``n / width`` iterations where each draws ``width`` of them,
        otherwise iterations for ``n`` paths of full length."""
        if self.simulate == "completions":
            width = min(self.width, n)
            return self.model_copy(update={"width": width, "iterations": max(1, n // width), "trajectories": None})
        steps = self.step.longest_path(self.sampling, self.depth)
        return self.model_copy(update={"trajectories": n, "iterations": n * steps})

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if self.step.by == "entropy":
            lines.append(
                "rollout.step.by: got 'entropy' with rollout.kind 'value-mcts'; allowed: tokens, lines, marker"
            )
        if self.believe == "outcome" and self.simulate != "completions":
            lines.append(
                f"rollout.believe: got 'outcome' with rollout.simulate {self.simulate!r}, which finishes no path on "
                "the way; allowed: rollout.simulate 'completions', or rollout.believe 'value'"
            )
        if self.believe == "outcome" and self.keep is not None:
            lines.append(
                f"rollout.keep: got {self.keep} with rollout.believe 'outcome', where new steps are not told apart; "
                "allowed: null"
            )
        return lines + super().check(stage)

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        by = CompletionSearch if self.simulate == "completions" else GreedySearch
        search = by(self, context, start)
        await search.run()
        return await search.finish()


class ValueSearch:
    """What both searches share: selection, budgets, and the end of the search."""

    def __init__(self, settings: ValueMCTS, context: Context, start: Node) -> None:
        self.settings, self.context = settings, context
        self.root = ValuedStep(start)
        self.ends: list[Node] = []
        self.iterations, self.ended = 0, "iterations"

    async def run(self) -> None:
        wanted = self.settings.trajectories
        while self.iterations < self.settings.iterations:
            if wanted is not None and len(self.ends) >= wanted:
                self.ended = "trajectories"
                return
            place = self.select()
            enough = self.settings.enough
            if enough is not None and place.terminal and place.value >= enough:
                self.ended = "enough"
                return
            if not place.terminal and not self.affordable(place, self.settings.width):
                self.ended = "tokens"
                return
            await self.visit(place)
            self.iterations += 1

    async def visit(self, place: ValuedStep) -> None:
        """Expand, simulate and back up."""
        raise NotImplementedError

    def select(self) -> ValuedStep:
        """Descend from the start along the best steps to one that was not expanded."""
        place = self.root
        while place.children:
            place = self.best(place)
        return place

    def best(self, place: ValuedStep) -> ValuedStep:
        return max((child for child in place.children if not child.hidden), key=self.score)

    def score(self, place: ValuedStep) -> float:
        settings, above = self.settings, place.above
        assert above is not None
        if settings.selection == "ucb":
            return ucb(place.value, place.visits, above.visits, settings.exploration, unvisited=settings.unvisited)
        return smoothed_uct(place.value, place.visits, above.visits, settings.exploration, settings.smoothing)

    def left(self, node: Node) -> int:
        """Tokens left for a trajectory through the node."""
        left = self.settings.sampling.max_completion_tokens - node.policy_tokens
        return min(left, self.context.tokens_left(node))

    def affordable(self, place: ValuedStep, wanted: int) -> int:
        """Number of draws below a step that the budget allows."""
        longest = self.left(place.node)
        if self.settings.simulate != "completions":
            longest = min(longest, self.settings.step.tokens)
        return min(wanted, self.context.budget_left // longest)

    async def finish(self) -> list[Node]:
        """The trajectories, and the tree with its values."""
        missing = (self.settings.trajectories or 1) - len(self.ends)
        if missing > 0:
            await self.complete(missing)
        for place in self.root.walk():
            place.node.stats |= {"visits": place.visits, "value": round(place.value, 6)}
            if place.above is not None:
                place.node.value = place.value
        counts = {
            "ended": self.ended,
            "iterations": self.iterations,
            "steps": len(self.root.walk()) - 1,
            "ends": len(self.ends),
        }
        self.context.tree.record("value-mcts", counts)
        return self.ends

    async def complete(self, missing: int) -> None:
        """Draw the unfinished paths of highest value to their ends, each once if there are enough."""
        leaves = [place for place in self.root.walk() if not (place.children or place.hidden or place.terminal)]
        best = sorted(leaves, key=lambda place: -place.value)[:missing]
        if not best:
            return
        left = [min(self.left(place.node), self.context.budget_left // missing) for place in best]
        self.ends += await extend_to_end(
            self.context,
            [
                (place.node, n, self.settings.sampling.at_most(tokens))
                for place, n, tokens in zip(best, evenly(missing, len(best)), left, strict=True)
                if tokens > 0
            ],
        )


class GreedySearch(ValueSearch):
    """MCTS*: a node's value is the mean of its children's, weighted by visits."""

    async def visit(self, place: ValuedStep) -> None:
        if not place.terminal:
            await self.expand(place)
            if place.children and self.settings.simulate == "greedy":
                await self.look_ahead(self.best(place))
        back_up_children(place)

    async def expand(self, place: ValuedStep) -> None:
        settings = self.settings
        count = self.affordable(place, settings.width)
        grown = await grow(
            self.context, place.node, count, settings.step, settings.sampling, depth_left=settings.depth - place.depth
        )
        seen: set[tuple[int, ...]] = set()
        for one in grown:
            (node,) = one.nodes
            if tuple(node.tokens) in seen:
                node.detach()
                continue
            seen.add(tuple(node.tokens))
            place.add(node, terminal=one.terminal)
        self.ends += [child.node for child in place.children if child.terminal]
        values = await self.context.value([child.node for child in place.children])
        for child, value in zip(place.children, values, strict=True):
            child.value = value
        hide(place.children, settings.keep)

    async def look_ahead(self, place: ValuedStep) -> None:
        """Move a new step's value towards the highest value met by a greedy look-ahead, which is then discarded."""
        settings = self.settings
        best, at, depth = 0.0, place.node, place.depth
        terminal = place.terminal
        for _ in range(0 if terminal else settings.forward_steps):
            count = self.affordable(ValuedStep(at), settings.forward_width)
            if not count or depth >= settings.depth:
                break
            ahead = await grow(
                self.context, at, count, settings.step, settings.sampling, depth_left=settings.depth - depth
            )
            nodes = [one.nodes[-1] for one in ahead]
            values = await self.context.value(nodes)
            chosen = max(range(len(nodes)), key=values.__getitem__)
            best, at, depth = max(best, values[chosen]), nodes[chosen], depth + 1
            if ahead[chosen].terminal:
                break
        if not terminal:
            place.value = (1 - settings.forward_share) * place.value + settings.forward_share * best
        place.visits += 1
        place.node.children.clear()


class CompletionSearch(ValueSearch):
    """VM-MCTS: a node's value is the mean of all values backed up through it."""

    async def visit(self, place: ValuedStep) -> None:
        visits, total = self.worth_of(place) if place.terminal else await self.expand(place)
        back_up_sum(place, visits, total)

    def worth_of(self, place: ValuedStep) -> tuple[int, float]:
        """What a finished path that was selected again backs up."""
        if self.settings.believe == "value":
            return 1, place.value
        return outcomes([place.node])

    async def expand(self, place: ValuedStep) -> tuple[int, float]:
        """Draw completions whose first steps are the children; returns the number of new values, and their sum."""
        settings, context = self.settings, self.context
        count = self.affordable(place, settings.width)
        sampling = settings.sampling.model_copy(update={"max_completion_tokens": self.left(place.node)})
        drawn = await context.extend(place.node, count, sampling, keep=True)
        new: dict[tuple[int, ...], ValuedStep] = {}
        times: list[ValuedStep] = []
        ends: list[Node] = []
        for completion in drawn:
            at = step_ends(completion.tokens, completion.model_logprob, settings.step, context.decode)[0]
            last_step = place.depth + 1 >= settings.depth
            whole = at == len(completion.tokens) or last_step
            chain = split(completion, [] if whole else [at])
            write_texts(chain, context.decode, terminal=True)
            key = (*chain[0].tokens, -1) if whole else tuple(chain[0].tokens)
            child = new.get(key)
            if child is None:
                child = new[key] = place.add(chain[0], terminal=whole)
            elif whole:
                chain[0].detach()
            else:
                move(chain[1], child.node)
            ends.append(child.node if whole else chain[-1])
            times.append(child)
        fresh = list(dict.fromkeys(ends))
        self.ends += fresh
        if settings.believe == "outcome":
            await context.grade(fresh)
            return outcomes(ends)
        values = await context.value([*(child.node for child in place.children), *fresh])
        for child, value in zip(place.children, values, strict=False):
            child.value = value
        for leaf, value in zip(fresh, values[len(place.children) :], strict=True):
            leaf.value = value
        for child in times:
            child.visits, child.total = child.visits + 1, child.total + child.value
        hide(place.children, settings.keep)
        return len(times), sum(child.value for child in times)
