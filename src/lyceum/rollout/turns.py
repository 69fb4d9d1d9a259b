"""Turns: the policy writes, an environment answers, the policy goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field

from lyceum.core.built import described, named, require_built
from lyceum.core.component import of_kind, slot
from lyceum.core.needs import Need
from lyceum.core.settings import Composition, EnvironmentSettings, RolloutSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import (
    ASSISTANT,
    Context,
    Environment,
    Exchange,
    Grade,
    History,
    NamesStates,
    Observation,
    Origin,
    Rollout,
    Sampling,
    World,
)
from lyceum.core.user_files import describe
from lyceum.reward.pool import WorkerError
from lyceum.reward.user_code import ending_its_call
from lyceum.rollout._growth import end_before
from lyceum.rollout._worlds import Worlds, is_world
from lyceum.rollout.flat import Flat
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.seeds import counter_seed
from lyceum.utils.terminal import quoted
from lyceum.utils.tracebacks import user_traceback

TURN, CALLS, FAILED, CUT, RAISED, REWRITTEN = "turn", "calls", "failed_calls", "cut", "failed_steps", "rewritten"
"""``Node.stats`` of a node in which a turn ends: its number, its calls, how many failed, whether the trajectory was
cut there, and whether the environment failed; and of an answer for which the template rewrote what stood."""
UNTRAINED = "untrained"
"""Metric: tokens that were sampled and are in no leaf of an episode."""


class Turns(RolloutSettings):
    """Independent samples that go on after each answer of an environment.

    Only what the policy wrote is trained, counts against limits and is graded; the answers are context. A turn ends
    where the policy ends its sequence, or at a string of the environment's; the environment says whether the trajectory
    ends with it. Messages are written by the chat template, below what stands: every token that was sampled is trained,
    as it was sampled.
    """

    gives: ClassVar = ("environment",)
    refuses: ClassVar = ("prefix-lengths",)
    turns_branch: ClassVar[bool] = False
    """Whether trajectories share turns, so that an environment is asked again from where it stood."""
    requires: ClassVar = (
        Need("episode-advantages", when=lambda own: own.history == "template"),
        Need("episode-weights", when=lambda own: own.history == "template"),
    )

    sized_by: ClassVar = "samples"

    kind: Literal["turns"] = "turns"
    samples: int = Field(default=8, ge=1)
    """Trajectories per task, unless the curriculum sets the number."""
    environment: Annotated[EnvironmentSettings, slot("environment", "calculator")] = of_kind("calculator")
    """What answers the policy's turns."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; ``max_completion_tokens`` is for all turns of a trajectory together."""
    history: History = "append"
    """What the policy reads of its earlier turns: ``append``: what it wrote; ``template``: what the chat template makes
    of them (Qwen 3 takes thoughts out before a user's next message). Where that differs the trajectory goes on below
    what is the same, and what was left is one more row of its episode."""
    waits: bool = True
    """Whether the engine waits while the environment answers, so that a resumed run is the same run. With false it goes
    on, which is faster with slow tools: batches then differ from run to run, and so do last bits."""

    @property
    def by_clock(self) -> bool:
        return not self.waits

    def check(self, stage: Composition) -> list[str]:
        kind = self.environment.kind
        told = f"environment: got {kind!r}, which is not repeatable, and turns branch here; allowed: rollout 'turns'"
        return super().check(stage) + ([told] if self.turns_branch and not self.environment.repeatable else [])

    def independent(self) -> Turns:
        return Turns(**{name: getattr(self, name) for name in Turns.model_fields if name != "kind"})

    def build(self) -> Rollout:
        built: Any = self.environment.build()
        return partial(self.roll, require_built(self.environment, built, World if is_world(built) else Environment))

    async def roll(
        self, environment: Environment[Any] | World[Any], context: Context, start: Node, n: int | None
    ) -> list[Node]:
        async with talking(self, environment, context, start, n or self.samples) as talk:
            return await self.talked(talk, n or self.samples)

    async def talked(self, talk: Conversation, samples: int) -> list[Node]:
        """The trajectories of a conversation."""

        async def to_end(place: TurnStart, turn: Node) -> Node:
            while (after := await talk.after(place, turn)) is not None:
                place = after
                (turn,) = await talk.extend(place, 1)
            return turn

        begins = await talk.begins(samples)
        drawn = await gather(talk.extend(place, number) for place, number in begins)
        places = [place for place, number in begins for _ in range(number)]
        return await gather(map(to_end, places, [turn for turns in drawn for turn in turns]))

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Turns per trajectory, calls and failed calls of the step, trajectories cut at the maximum, turns that the
        environment failed on, answers for which the template rewrote what stood, sampled tokens that are in no row, and
        what the environment counts."""
        turns = [leaf.stats.get(TURN, 1) for tree in trees for leaf in tree.trajectories]
        nodes = [node for tree in trees for node in tree.nodes()]
        names = (CALLS, FAILED, CUT, RAISED, REWRITTEN, *self.environment.counted)
        counts = {name: sum(node.stats.get(name, 0) for node in nodes) for name in names}
        return {"mean": sum(turns) / max(1, len(turns)), **counts, UNTRAINED: sum(map(untrained, trees))}

    def note(self, trees: Sequence[Tree]) -> str | None:
        """That no tool was called, or that no call got a result."""
        nodes = [node for tree in trees for node in tree.nodes()]
        calls, failed = (sum(node.stats.get(name, 0) for node in nodes) for name in (CALLS, FAILED))
        if not calls and self.tools:
            return (
                "no tool was called; where the model's chat template has no place for tools, the prompts have to say "
                'what there is, and that calls are written <tool_call>{"name": ..., "arguments": {...}}</tool_call>'
            )
        if calls and failed == calls:
            answers = (node.text for node in nodes if node.parent is not None and node.parent.stats.get(FAILED))
            return f"all {calls} calls of the environment failed; the first answer is {quoted(next(answers, ''))}"
        return None


@dataclass(frozen=True)
class TurnStart:
    """Where the policy takes a turn.

    Attributes:
        node: below which it writes.
        state: the environment's.
        turn: the number of the turn, from 1.
        said: the assistant's text since the environment's last answer that stands above the node.
        sampling: of the turn, within what is left of the trajectory's tokens.
        left: the leaves that the trajectory left, where its history was rewritten.
        failure: why it is not graded, where the environment failed to begin or to replay; it is asked nothing then.
    """

    node: Node
    state: Any
    turn: int
    said: str
    sampling: Sampling
    left: tuple[Node, ...] = ()
    failure: Grade | None = None


@asynccontextmanager
async def talking(
    settings: Turns, environment: Environment[Any] | World[Any], context: Context, start: Node, samples: int
) -> AsyncIterator[Conversation]:
    """A conversation, after which no world is left."""
    if not is_world(environment):
        yield Conversation(settings, cast("Environment[Any]", environment), context, start, samples)
        return
    worlds = Worlds(environment, repeatable=settings.environment.repeatable)
    try:
        yield Conversation(settings, worlds, context, start, samples)
    finally:
        await worlds.close()


class Conversation:
    """A task's trajectories through one start, turn by turn.

    Attributes:
        begin: where they begin, before :meth:`begins`.
    """

    def __init__(
        self, settings: Turns, environment: Environment[Any], context: Context, start: Node, samples: int
    ) -> None:
        self.settings, self.environment, self.context = settings, environment, context
        stand, said = exchanges(start)
        state, failed = None, None
        try:
            with ending_its_call():
                state = environment.replay(context.task, stand) if stand else environment.reset(context.task)
        except Exception as error:
            failed = failure(settings.environment, error)
        if failed is None and start.key is None and isinstance(environment, NamesStates):
            start.key = environment.key_of(state)
        sampling = settings.sampling.affordable(start.policy_tokens, context.budget_left // samples)
        stops = (*sampling.stop, *(stop for stop in settings.environment.stops if stop not in sampling.stop))
        sampling = sampling.model_copy(update={"stop": stops})
        self.most = start.policy_tokens + sampling.max_completion_tokens
        self.begin = TurnStart(start, state, len(stand) + 1, said, sampling, failure=failed)

    async def begins(self, samples: int) -> list[tuple[TurnStart, int]]:
        """Where trajectories begin, and how many at each place: all at one, or each with a world of its own."""
        if not isinstance(self.environment, Worlds) or self.begin.turn > 1 or self.begin.said:
            return [(self.begin, samples)]
        places = await gather(self._begun(self.environment) for _ in range(samples))
        return [(place, 1) for place in places]

    async def _begun(self, worlds: Worlds[Any]) -> TurnStart:
        life = await self._outcome(lambda: worlds.begin(self.context.task))
        if isinstance(life, Grade):
            return replace(self.begin, failure=life)
        if not life.began:
            return replace(self.begin, state=life)
        tokens = self.context.render([*self.context.task.messages, *life.began])
        node = self.context.tree.add_prompt(tokens, self.context.decode(tokens))
        left = self.context.tokens_left(node)
        full = None if left else Grade.ungraded(f"{named(self.settings.environment)}: it begins with more than fits")
        return replace(self.begin, node=node, state=life, sampling=self.begin.sampling.at_most(left), failure=full)

    async def extend(self, place: TurnStart, n: int, *, entropy: bool = False) -> list[Node]:
        return await self.context.extend(place.node, n, place.sampling, keep=True, entropy=entropy)

    async def after(self, place: TurnStart, turn: Node) -> TurnStart | None:
        """Where the policy goes on after a turn, once the environment has answered; None where the trajectory ends."""
        turn.stats[TURN] = place.turn
        turn.others = list(place.left)
        if place.failure is not None:
            turn.grade, turn.stats[RAISED] = place.failure, 1
            return None
        if turn.finish != "stop":
            await self._end(place.state)
            return None
        observed = await self.observed(place, turn)
        if observed is None:
            turn.stats[RAISED] = 1
            return None
        turn.reward = observed.reward
        turn.stats |= {CALLS: observed.calls, FAILED: observed.failed, **observed.counts}
        if observed.end:
            return None
        left = self.most - sampled_tokens(turn)
        most = self.settings.environment.turns_at(self.context.progress)
        full = place.turn >= most or left < 1
        answer = None if full else answered(turn, observed, self.context, self.settings.history)
        if answer is None:
            turn.finish = "length"
            turn.stats[CUT] = 1
            await self._end(observed.state)
            return None
        leaves = place.left if turn in answer.path() else (*place.left, turn)
        turn.others = []
        left = min(left, self.context.tokens_left(answer))
        return TurnStart(answer, observed.state, place.turn + 1, "", place.sampling.at_most(left), leaves)

    async def observed(self, place: TurnStart, turn: Node) -> Observation[Any] | None:
        """The environment's answer; None where it has none, which leaves the trajectory ungraded.

        Raises:
            RunError: it returned something else.
        """
        settings = self.settings.environment
        said = place.said + turn.text
        observed = await self._outcome(lambda: self.environment.step(place.state, turn, said, self.context))
        if isinstance(observed, Grade):
            turn.grade = observed
            return None
        if not isinstance(observed, Observation):
            raise RunError(
                f"{named(settings)}: step returned {described(observed)}; allowed: "
                "lyceum.core.types.Observation(state, ...)"
            )
        return observed

    async def _outcome(self, asked: Callable[[], Awaitable[Any]]) -> Any:
        """What the environment answers, or an ungraded grade that says why there is nothing."""
        settings = self.settings.environment
        limit = asyncio.timeout(settings.step_timeout_seconds)
        try:
            async with limit:
                with ending_its_call():
                    answer = asked()
                    return await (self.context.outside(answer) if self.settings.waits else answer)
        except Exception as error:
            failed = failure(settings, error)
            if limit.expired():
                late = f"no answer within {settings.step_timeout_seconds:g} seconds (step_timeout_seconds)"
                return Grade.ungraded(f"{named(settings)}: {late}")
            return failed

    async def _end(self, state: Any) -> None:
        if isinstance(self.environment, Worlds):
            await self.environment.end(state)


def failure(environment: EnvironmentSettings, error: Exception) -> Grade:
    """What an environment's failure leaves of a trajectory. Raises the error where it is the run's own."""
    if isinstance(error, (RunError, RecipeError)) and not isinstance(error, WorkerError):
        raise error
    return Grade.ungraded(f"{named(environment)}: {describe(error)}", user_traceback(error))


def independent(rollout: RolloutSettings | None, environment: EnvironmentSettings | None) -> RolloutSettings:
    """Independent samples, as evaluations draw them: by turns or by an agent where the rollout does.

    Args:
        environment: what answers the turns instead of the rollout's own; None leaves it.
    """
    if environment is None:
        return (None if rollout is None else rollout.independent()) or Flat()
    return Turns(environment=environment, history=rollout.history if isinstance(rollout, Turns) else "append")


def sampled_tokens(trajectory: Node) -> int:
    """How many tokens the policy wrote in a trajectory's episode: what counts against its limits."""
    nodes = {id(node): node for leaf in trajectory.episode for node in leaf.path()}
    return sum(len(node.tokens) for node in nodes.values() if node.origin is Origin.POLICY)


def untrained(tree: Tree) -> int:
    """How many tokens the policy wrote in a tree that no leaf of an episode has in its path."""
    trained = {id(node) for end in tree.trajectories for leaf in end.episode for node in leaf.path()}
    return sum(len(n.tokens) for n in tree.nodes() if n.origin is Origin.POLICY and id(n) not in trained)


def exchanges(start: Node) -> tuple[list[Exchange], str]:
    """The turns that stand above a node, with their answers, and what was said after the last answer.

    Turns that a template has rewritten are part of an answer's text, and are not found.
    """
    found: list[Exchange] = []
    said = ""
    for node in start.path()[1:]:
        if node.origin in ASSISTANT:
            said += node.text
        elif node.origin in (Origin.TOOL, Origin.PROMPT):
            found.append(Exchange(said, node.text))
            said = ""
    return found, said


def answered(turn: Node, observed: Observation[Any], context: Context, history: History) -> Node | None:
    """The node of the environment's answer, below which the policy goes on; None where the model's context is full."""
    tokens, keep, origin = list(observed.tokens), len(turn.path_tokens()), Origin.TOOL
    if observed.messages:
        keep, tokens = context.follow(turn, observed.messages, history)
        if any(message["role"] != "tool" for message in observed.messages):
            origin = Origin.PROMPT
    path, prompt = turn.path_tokens(), len(turn.root.tokens)
    if not context.tokens_left(Node.prompt([*path[:keep], *tokens])):
        return None
    text = context.decode(tokens)
    if keep == len(path):
        answer = turn.add(tokens, origin, text)
    elif keep < prompt:
        answer = context.tree.add_prompt([*path[:keep], *tokens], text)
    else:
        answer = end_before(turn, keep - prompt, context.decode).add(tokens, origin, text)
        # Several trajectories may leave the same place with the same tokens: their draws stay apart.
        answer.address = counter_seed(turn.address, answer.address)
    if keep < len(path):
        answer.stats[REWRITTEN] = 1
    answer.key = observed.key
    return answer
