"""Buttons of a small app to be pressed in order, by a planner that sees names and looks.

Guidance ``planner-grounder`` has a grounder find what the planner names; environment ``app`` finds it by rule. The
level is how many buttons.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Split, Task
from lyceum.papers.autoglm._app import BUTTONS, App, drawn_goals, look_in, to_planner
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, levels_within


class AppTasks(TasksSettings):
    """Buttons to press; correct where all were, in order, and no other one."""

    kind: Literal["app"] = "app"
    levels: tuple[int, ...] = (1, 2, 3)
    """Numbers of buttons; tasks cycle through them, so that every level has the same share."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, len(BUTTONS), "numbers of buttons")

    def build(self, split: Split, seed: int) -> AppSource:
        return AppSource(self, split, seed)


class AppSource(GeneratedSource[AppTasks]):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        key = self.key(index)
        goals = drawn_goals(random.Random(key), self.settings.levels[index % len(self.settings.levels)])
        return made(key, goals)

    def grader(self) -> Grader:
        return each(grade)


def made(key: str, goals: str) -> Task:
    """The task of pressing these buttons, on screens that the key names."""
    return Task(key, asked(App(key, goals)), goals, {"level": len(goals), "goals": goals}, provenance="app")


def app_of(task: Task) -> App:
    return App(task.id, str(task.columns["goals"]))


def asked(app: App) -> tuple[Message, ...]:
    return ({"role": "user", "content": to_planner(app)},)


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the words lead to the goals where each is found as it was meant."""
    app: App | None = app_of(task)
    for turn in leaf.written:
        if app is None or app.done:
            break
        look = look_in(turn.text)
        element = next((one for one in app.screen if one.look == look), None)
        app = app if element is None else app.after(element)
    return verdict(app is not None and app.done)
