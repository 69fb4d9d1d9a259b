"""Games of other libraries: each turn of the policy is an action, and it reads what the game then shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Message, Observation, Sampling, Task, TaskSource
from lyceum.reward.pool import WorkerPool
from lyceum.tasks.games import GAME, SEED, digest, pool_of
from lyceum.utils.errors import RecipeError


class PlayedGame(EnvironmentSettings):
    """Plays the games of the tasks ``gymnasium`` and ``textarena``, whose prompts are what the games show at first.

    A turn is an action; what the game then shows is the user's next message. Games are played in processes with the
    limits of the tasks. A state is the seed and the actions, and is played again where it is not at hand (in another
    branch, or in a process that was replaced); a game that then shows something else is not repeatable, and its
    trajectory is ungraded. The reward ``environment``, as the tasks' own, is the sum of what the game paid.
    """

    kind: Literal["game"] = "game"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since the tasks' ``timeout_seconds`` holds."""
    failed_reward: float = 0.0
    """Reward of each turn that is no action, read by the reward ``environment``. The game then stands as it was."""
    opponent: Sampling = Sampling(max_completion_tokens=256)
    """How the other player's turns are drawn, where that is the model itself (``tasks.opponent=self``)."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not source[0].columns.keys() >= {GAME, SEED}:
            raise RecipeError("environment.game: the tasks are no games; allowed: tasks 'gymnasium' or 'textarena'")

    def build(self) -> Environment[Played]:
        return GameEnvironment(self)


@dataclass(frozen=True)
class Played:
    """A game so far.

    Attributes:
        game, seed: how it is made, and what it began with.
        actions: what was played, by both players.
        seen: digests of what was shown at first and after each action.
        other: what the other player was shown and has answered, in turns, where that is the model.
    """

    game: str
    seed: int
    actions: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    other: tuple[Message, ...] = ()


class GameEnvironment:
    def __init__(self, settings: PlayedGame) -> None:
        self.settings = settings
        self.pools: dict[str, WorkerPool] = {}

    def reset(self, task: Task) -> Played:
        game = task.columns[GAME]
        self.pools[game] = self.pools.get(game) or pool_of(game)
        return Played(game, task.columns[SEED])

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Played:
        raise RecipeError("environment.game: a trajectory cannot begin within a game; allowed: rollout 'turns'")

    async def step(self, state: Played, turn: Node, said: str, context: GradingContext) -> Observation[Played]:
        if not state.seen:
            begun = await self.pools[state.game].run({"seed": state.seed, "actions": [], "seen": []})
            state = replace(state, seen=(digest(begun["text"]),))
        moved = await self.moved(state, said)
        if "refused" in moved:
            told = ({"role": "user", "content": f"error: {moved['refused']}"},)
            return Observation(state, told, reward=self.settings.failed_reward, calls=1, failed=1)
        state, reward = self.after(state, said, moved), moved["reward"]
        while moved["player"] and not moved["end"]:
            asked = (*state.other, {"role": "user", "content": moved["text"]})
            key = ("game/opponent", turn.address, len(state.actions))
            [drawn] = await context.ask(context.render(asked), 1, self.settings.opponent, key=key)
            said = context.decode(drawn.tokens)
            moved = await self.moved(state, said)
            state = replace(state, other=(*asked, {"role": "assistant", "content": said}))
            state, reward = self.after(state, said, moved), reward + moved["reward"]
        text, end = moved["text"], moved["end"]
        messages = () if end else ({"role": "user", "content": text},)
        return Observation(state, messages, reward=reward, end=end, key=digest(text), calls=1)

    async def moved(self, state: Played, said: str) -> dict[str, Any]:
        actions = [*state.actions, said.encode("utf-8", "replace").decode()]
        return await self.pools[state.game].run({"seed": state.seed, "actions": actions, "seen": list(state.seen)})

    def after(self, state: Played, said: str, moved: Mapping[str, Any]) -> Played:
        action = said.encode("utf-8", "replace").decode()
        return replace(state, actions=(*state.actions, action), seen=(*state.seen, digest(moved["text"])))
