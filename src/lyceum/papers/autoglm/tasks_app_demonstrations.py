"""Words to be found on a screen, and turns of a planner, for fine-tuning before both are trained apart.

Planners press any menu: which one holds a button is left to be learnt. What they see they name as it looks.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Message, Split, Task
from lyceum.papers.autoglm._app import HOME, MENUS, App, to_grounder
from lyceum.papers.autoglm.tasks_app import AppSource, AppTasks, app_of, asked


class AppDemonstrations(AppTasks):
    """Pairs of words and places, and turns of a planner, in turn."""

    kind: Literal["app-demonstrations"] = "app-demonstrations"  # pyright: ignore[reportIncompatibleVariableOverride]
    pairs: int = Field(2, ge=1, le=16)
    """Pairs of words and places for each turn of a planner."""
    misses: float = Field(0.1, ge=0, le=1)
    """Share of pairs whose place is that of something else on the screen."""

    def build(self, split: Split, seed: int) -> AppDemonstrationSource:
        return AppDemonstrationSource(self, split, seed)


class AppDemonstrationSource(AppSource):
    """Task i has form i modulo (pairs + 1), and depends on its id alone."""

    def __init__(self, settings: AppDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        self.pairs, self.misses = settings.pairs, settings.misses

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        rng = random.Random(f"{task.id}/said")
        app = app_of(task)
        app = replace(app, pressed=rng.randrange(len(app.goals)), menu=rng.choice(["", *MENUS]))
        messages, text = self.turn(rng, app) if index % (self.pairs + 1) == self.pairs else self.pair(rng, app)
        columns = {**task.columns, "demonstration": text}
        return replace(task, messages=messages, answer=text, columns=columns, provenance="app-demonstrations")

    def pair(self, rng: random.Random, app: App) -> tuple[tuple[Message, ...], str]:
        screen = app.screen
        named = rng.choice(screen)
        found = rng.choice(screen) if rng.random() < self.misses else named
        return ({"role": "user", "content": to_grounder(screen, named.look)},), found.place

    def turn(self, rng: random.Random, app: App) -> tuple[tuple[Message, ...], str]:
        """The goal where it is shown; else the way back, or any menu."""
        named = app.wanted if app.menu else rng.choice(MENUS)
        if app.menu and named == HOME and rng.random() < 0.2:
            named = rng.choice(app.names)
        return asked(app), next(element.look for element in app.screen if element.name == named)
