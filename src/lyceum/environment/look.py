"""A closer look: the policy names a part of a picture and is shown that part, larger, as a new picture."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Message, Observation, Task, TaskSource, ToolCall
from lyceum.environment._tool_calls import ERROR, tool_calls
from lyceum.models.see import LEAST_SIDE, MOST_ASPECT, Pixels, data_uri, read_picture
from lyceum.utils.documents import DocumentLimits
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import picture_parts
from lyceum.utils.numbers import python_number
from lyceum.utils.terminal import quoted

NAME = "look"
LONGEST = 4096
"""Pixels beyond which the longer side of a part is not enlarged."""
EDGES = ("left", "top", "right", "bottom")
LOOKS, REFUSED = "looks", "refused"
"""What is counted: pictures shown, and turns that asked for one and got none."""

_CALL_LIMITS = DocumentLimits(characters=2000, depth=5, values=50)
_NUMBER = r"\d{1,4}"
_FOUR = re.compile(rf"{_NUMBER}(?:,{_NUMBER}){{3}}")


class Look(EnvironmentSettings):
    """Shows a part of the task's picture again, enlarged, in a message after the turn that asks for it; a turn that
    asks for none ends the trajectory.

    The policy asks with a tool call, ``<tool_call>{"name": "look", "arguments": {"left": 0, "top": 500, "right": 500,
    "bottom": 1000}}</tool_call>``, in its template's own form where that has one; or (``mark``) with a turn such as
    ``T0,500,500,1000``. As RoI Inspection in DriveAgent-R1 (arXiv:2507.20879), the part is enlarged to a least side.
    """

    kind: Literal["look"] = "look"
    mark: str | None = Field(default=None, min_length=1)
    """What a turn begins with that asks for a look, before four numbers with commas between them, for models that know
    no tool calls; null: tool calls of the chat template."""
    units: int = Field(default=1000, ge=1, le=9999)
    """What the right and the lower edge of the picture are in the numbers that the policy writes; the left and the
    upper one are 0. 1000 as Qwen3-VL and Gemma write places."""
    least_side: int = Field(default=448, ge=LEAST_SIDE, le=LONGEST)
    """Pixels that the shorter side of a part is enlarged to; one that has more stays as it is. The longer one is
    enlarged to at most 4096."""
    least_share: float = Field(default=0.02, ge=0, le=1)
    """Minimum share of the picture's width and of its height that a part has; a smaller one is refused."""
    times: int = Field(default=4, ge=1, le=32)
    """Maximum looks of a trajectory; later ones are refused."""
    role: Literal["tool", "user"] = "user"
    """Whose message the picture is in: the user's, since the tools of many templates can only return text, or the
    tool's. With ``mark`` it is the user's."""
    failed_reward: float = 0.0
    """Reward of each look that is refused, read by the reward ``environment``."""

    @property
    def counted(self) -> tuple[str, ...]:
        return (LOOKS, REFUSED)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        return (_schema(self.units),) if self.mark is None else ()

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not any(True for _ in picture_parts(source[0].messages)):
            raise RecipeError(
                "environment.look: the tasks show no picture; allowed: tasks with pictures, such as 'pictures' or rows "
                "with a column 'images'"
            )

    def build(self) -> Environment[LookState]:
        return LookEnvironment(self)


def _schema(units: int) -> dict[str, Any]:
    edge = {"type": "number", "minimum": 0, "maximum": units}
    return {
        "type": "function",
        "function": {
            "name": NAME,
            "description": (
                f"Shows a part of the picture, enlarged. The picture's edges are 0 (left, top) and {units} (right, "
                "bottom)."
            ),
            "parameters": {"type": "object", "properties": dict.fromkeys(EDGES, edge), "required": [*EDGES]},
        },
    }


@dataclass(frozen=True)
class LookState:
    """The picture that is looked at, the task's last one, and how often it was."""

    source: str
    looks: int = 0


class LookEnvironment:
    def __init__(self, settings: Look) -> None:
        self.settings = settings

    def reset(self, task: Task) -> LookState:
        return LookState(list(picture_parts(task.messages))[-1])

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> LookState:
        return replace(self.reset(task), looks=len(exchanges))

    async def step(self, state: LookState, turn: Node, said: str, context: GradingContext) -> Observation[LookState]:
        asked = self.asked(said, turn, context)
        if asked is None:
            return Observation(state, end=True)
        full = state.looks >= self.settings.times
        shown = f"{ERROR}: no more than {self.settings.times} looks" if full else self.shown(state.source, asked)
        after = replace(state, looks=state.looks + 1)
        failed = shown.startswith(ERROR)
        return Observation(
            after,
            (self.message(shown, failed=failed),),
            reward=self.settings.failed_reward * failed,
            key=f"{after.looks}:{asked}",
            calls=1,
            failed=int(failed),
            counts={REFUSED: 1} if failed else {LOOKS: 1},
        )

    def asked(self, said: str, turn: Node, context: GradingContext) -> Sequence[float] | str | None:
        """The edges that a turn names, or what is wrong with them; None where it asks for no look.

        Of several calls in a turn the first counts: the next one may depend on what it shows.
        """
        mark = self.settings.mark
        if mark is not None:
            if not said.startswith(mark):
                return None
            edges = said.strip().removeprefix(mark)
            return [*map(float, edges.split(","))] if _FOUR.fullmatch(edges) else "four numbers are needed"
        calls = tool_calls(said, turn, context, limits=_CALL_LIMITS, most=1)
        if not calls:
            return None
        if not isinstance(calls[0], ToolCall):
            return calls[0].text.removeprefix(f"{ERROR}: ")
        if calls[0].name != NAME:
            return f"no tool {quoted(calls[0].name)}; allowed: {NAME}"
        edges = [python_number(calls[0].arguments.get(edge)) for edge in EDGES]
        known = [float(edge) for edge in edges if edge is not None and math.isfinite(edge)]
        return known if len(known) == len(EDGES) else f"{', '.join(EDGES)} have to be numbers"

    def shown(self, source: str, asked: Sequence[float] | str) -> str:
        """The part as a ``data:`` URI, or a line that begins with ``error`` and says why there is none."""
        of = self.settings
        if isinstance(asked, str):
            return f"{ERROR}: {asked}"
        left, top, right, bottom = (min(1.0, max(0.0, edge / of.units)) for edge in asked)
        if min(right - left, bottom - top) < max(of.least_share, 1e-9):
            return f"{ERROR}: the part is smaller than {of.least_share:g} of the picture each way"
        return _part(source, (left, top, right, bottom), of.least_side) or (
            f"{ERROR}: one side of the part is more than {MOST_ASPECT} times the other"
        )

    def message(self, shown: str, *, failed: bool) -> Message:
        part = {"type": "text", "text": shown} if failed else {"type": "image", "image": shown}
        if self.settings.mark is not None or self.settings.role == "user":
            return {"role": "user", "content": [part]}
        return {"role": "tool", "name": NAME, "content": [part]}


@lru_cache(maxsize=64)  # a group looks at the same picture, often at the same part of it
def _part(source: str, edges: tuple[float, float, float, float], least_side: int) -> str | None:
    part = part_of(read_picture(source), edges, least_side)
    # Any other picture of this form would be refused where it is read.
    return data_uri(part) if max(part.shape[:2]) <= MOST_ASPECT * min(part.shape[:2]) else None


def part_of(pixels: Pixels, edges: Sequence[float], least_side: int) -> UInt8[np.ndarray, "rows columns 3"]:
    """A part of a picture, enlarged.

    Args:
        pixels: (height, width, 3).
        edges: left, top, right, bottom as shares of the picture, 0 to 1; right and bottom lie beyond the others.
        least_side: pixels that the part's shorter side is enlarged to, as far as the longer one does not exceed
            ``LONGEST``.
    Returns:
        (rows, columns, 3), at least one pixel of the picture each way.
    """
    from PIL import Image

    height, width = pixels.shape[:2]
    left, top = min(int(edges[0] * width), width - 1), min(int(edges[1] * height), height - 1)
    right, bottom = max(left + 1, math.ceil(edges[2] * width)), max(top + 1, math.ceil(edges[3] * height))
    part = Image.fromarray(pixels[top:bottom, left:right])
    times = min(least_side / min(part.size), LONGEST / max(part.size))
    if times > 1:
        part = part.resize((round(part.width * times), round(part.height * times)), Image.Resampling.LANCZOS)
    return np.asarray(part, dtype=np.uint8)
