"""Environments of gymnasium with few actions, as games in text."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from lyceum.tasks.games import GameTasks, Move, NotAnAction, marked
from lyceum.utils.numbers import plain, to_json
from lyceum.utils.terminal import quoted

_MARKED = re.compile(r"\x1b\[[\d;]+m(.*?)\x1b\[0m", re.DOTALL)


class GymnasiumTasks(GameTasks):
    """A registered environment of gymnasium (https://gymnasium.farama.org), each task from a seed of its own.

    What is shown is the environment's text rendering (``render_mode: ansi``) where it has one, with what is marked by
    colour in brackets, else its observation as JSON. An action is what stands in the last ``[brackets]`` of a turn, or
    else the whole turn: the number of the action or its name. Spaces of actions are Discrete or Text.
    """

    library: ClassVar[str] = "gymnasium"

    kind: Literal["gymnasium"] = "gymnasium"
    actions: tuple[str, ...] = ()
    """Names of the actions, in order; empty: actions are numbers."""

    @property
    def made(self) -> dict[str, Any]:
        return {"name": self.name, "options": self.options, "actions": list(self.actions)}


class GymnasiumGame:
    """Implements :class:`lyceum.tasks.games.LibraryGame`."""

    def __init__(self, environment: Any, actions: tuple[str, ...]) -> None:
        spaces = importlib.import_module("gymnasium").spaces
        self.environment, space = environment, environment.action_space
        self.text = isinstance(space, spaces.Text)
        if not self.text and not isinstance(space, spaces.Discrete):
            raise ValueError(f"actions are {quoted(str(space))}; allowed: Discrete or Text")
        self.start = 0 if self.text else int(space.start)
        self.names = actions or (() if self.text else tuple(str(self.start + i) for i in range(int(space.n))))
        if not self.text and len(self.names) != int(space.n):
            raise ValueError(f"tasks.actions names {len(self.names)} actions, and there are {int(space.n)}")

    def begin(self, seed: int) -> str:
        observation, _ = self.environment.reset(seed=seed)
        return self._shown(observation)

    def play(self, action: str) -> Move:
        observation, reward, terminated, truncated, _ = self.environment.step(self._read(action))
        return Move(self._shown(observation), float(reward), bool(terminated or truncated))

    def close(self) -> None:
        self.environment.close()

    def _read(self, said: str) -> Any:
        given = marked(said)
        if self.text:
            if not self.environment.action_space.contains(given):
                raise NotAnAction(f"got {quoted(given)}; allowed: a text of {self.environment.action_space}")
            return given
        named = [name.lower() for name in self.names]
        if given.lower() not in named:
            raise NotAnAction(f"got {quoted(given)}; allowed: {', '.join(f'[{name}]' for name in self.names)}")
        return self.start + named.index(given.lower())

    def _shown(self, observation: Any) -> str:
        if self.environment.render_mode == "ansi":
            return _MARKED.sub(r"[\1]", str(self.environment.render())).strip("\n")
        return observation if isinstance(observation, str) else to_json(_values(observation))


def make(name: str, options: Mapping[str, Any], actions: list[str]) -> GymnasiumGame:
    """Raises what gymnasium raises where there is no such environment."""
    gymnasium: Any = importlib.import_module("gymnasium")
    modes = (getattr(gymnasium.make(name, **options).unwrapped, "metadata", None) or {}).get("render_modes", ())
    given = {"render_mode": "ansi", **options} if "ansi" in modes else dict(options)
    return GymnasiumGame(gymnasium.make(name, **given), tuple(actions))


def _values(observation: Any) -> Any:
    """An observation as plain values: arrays as lists."""
    if isinstance(observation, Mapping):
        return {str(key): _values(each) for key, each in observation.items()}
    if isinstance(observation, tuple | list):
        return [_values(each) for each in observation]
    return plain(observation.tolist() if hasattr(observation, "tolist") else observation)
