"""A planner says in words what to press, a grounder finds it on the screen; each is trained for its own part (AutoGLM).

Source: AutoGLM, arXiv:2411.00820: an intermediate interface between planning and grounding, which are trained apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Grade, Origin, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of, own_prompt
from lyceum.papers.autoglm._app import App, Element, at, look_in, to_grounder
from lyceum.papers.autoglm.environment_app import check_app
from lyceum.papers.autoglm.tasks_app import app_of, asked
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class PlannerGrounder(GuidanceSettings):
    """Sessions turn by turn: the planner names the look of what is to be pressed, the grounder answers with a place on
    the screen several times, of which the first is pressed, and the planner reads the next screen.

    The planner earns 1 for a session in which all goals were pressed. Each place earns 1 where what was named is there,
    whatever came of the session; places for the same words on the same screen are compared with each other.
    """

    plays: ClassVar[tuple[str, ...]] = ("planner", "grounder")

    kind: Literal["planner-grounder"] = "planner-grounder"
    groundings: int = Field(default=4, ge=1, le=64)
    """Places that the grounder gives for the same words."""
    turns: int = Field(default=3, ge=1)
    """Maximum turns per goal; a session that would go on fails."""

    def check_tasks(self, source: TaskSource) -> None:
        check_app("guidance.planner-grounder", source)

    def build(self, source: TaskSource, *, seed: int) -> PlannerGrounderGuide:
        return PlannerGrounderGuide(self)


@dataclass
class Sessions(Note):
    """What became of a task's sessions.

    Attributes:
        solved: of each session, whether all goals were pressed.
        turns: of each session.
        wordless: turns that name no look of the screen.
        places, right: of the grounder, and how many were where it was named.
        missed: presses that were elsewhere than named.
    """

    kind: ClassVar[str] = "planner-grounder"
    solved: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    wordless: int = 0
    places: int = 0
    right: int = 0
    missed: int = 0


class PlannerGrounderGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: PlannerGrounder) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note = Sessions()
        context.tree.add_note(note)
        begun = await rollout(context.acting("planner"), start, n)
        sessions = await gather([self.session(rollout, context, turn, note) for turn in begun])
        return [leaf for leaves in sessions for leaf in leaves]

    async def session(self, rollout: Rollout, context: Context, turn: Node, note: Sessions) -> list[Node]:
        """The planner's trajectory that begins with a turn, and the places of the grounder."""
        app: App | None = app_of(context.task)
        most = self.settings.turns * len(app.goals)
        places: list[Node] = []
        number = 0
        while app is not None:
            number += 1
            element, leaves = await self.pressed(rollout, context, app, turn, note)
            places += leaves
            app = app if element is None else app.after(element)
            if app is None or app.done or number == most or turn.finish != "stop":
                break
            following = await self.turn(rollout, context, app, turn)
            if following is None:
                break
            turn = following
        solved = app is not None and app.done
        turn.grade = Grade(float(solved), solved)
        note.solved.append(float(solved))
        note.turns.append(float(number))
        return [turn, *places]

    async def turn(self, rollout: Rollout, context: Context, app: App, turn: Node) -> Node | None:
        """The planner's next turn, below the next screen; None where no token is left for it."""
        planner = context.acting("planner")
        keep, tokens = planner.follow(turn, asked(app))
        if keep != len(turn.path_tokens()) or planner.budget_left < 1:
            return None
        seen = turn.add(tokens, Origin.PROMPT, planner.decode(tokens))
        if not planner.tokens_left(seen):
            return None
        return next(iter(await rollout(planner, seen, 1)), None)

    async def pressed(
        self, rollout: Rollout, context: Context, app: App, turn: Node, note: Sessions
    ) -> tuple[Element | None, list[Node]]:
        """What is pressed after a turn, and the places that the grounder gave."""
        screen = app.screen
        look = look_in(turn.text)
        named = next((element for element in screen if element.look == look), None)
        note.wordless += named is None
        if look is None or named is None:
            return None, []
        grounder = context.acting("grounder")
        shown = to_grounder(screen, look)
        prompt = own_prompt(grounder, [{"role": "user", "content": shown}], f"grounder {shown}")
        if prompt is None:
            return None, []
        leaves = await rollout(grounder, prompt, self.settings.groundings)
        for leaf in leaves:
            right = at(screen, leaf.completion) == named
            leaf.grade = Grade(float(right), right)
            note.right += right
        note.places += len(leaves)
        element = at(screen, leaves[0].completion) if leaves else None
        note.missed += element != named
        return element, leaves

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Sessions)]
        solved, turns = ([one for note in notes for one in getattr(note, name)] for name in ("solved", "turns"))
        places = sum(note.places for note in notes)
        self._metrics = {
            "sessions/all": len(solved),
            "turns/wordless": sum(note.wordless for note in notes),
            "places/all": places,
            "presses/missed": sum(note.missed for note in notes),
            **({"sessions/solved": mean(solved), "turns/mean": mean(turns)} if solved else {}),
            **({"places/right": sum(note.right for note in notes) / places} if places else {}),
        }
