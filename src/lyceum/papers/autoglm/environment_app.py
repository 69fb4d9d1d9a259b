"""The app of the tasks ``app``, in which what the planner names is found by rule: for a look at the planner alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task, TaskSource
from lyceum.papers.autoglm._app import App, look_in
from lyceum.papers.autoglm.tasks_app import app_of, asked
from lyceum.utils.errors import RecipeError


class AppEnvironment(EnvironmentSettings):
    """A turn names the look of what is pressed; the next screen follows. All goals pressed, or a button that is not the
    next one, end the session."""

    kind: Literal["app"] = "app"

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        check_app("environment.app", source)

    def build(self) -> Environment[App]:
        return AppWorld()


class AppWorld:
    def reset(self, task: Task) -> App:
        return app_of(task)

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> App:
        app = self.reset(task)
        for said, _ in exchanges:
            app = pressed(app, said) or app
        return app

    async def step(self, state: App, turn: Node, said: str, context: GradingContext) -> Observation[App]:
        after = pressed(state, said)
        if after is None or after.done:
            done = after is not None
            return Observation(after or state, reward=float(done), end=True, calls=1, failed=int(not done))
        return Observation(after, asked(after), key=key_of(after), calls=1, failed=int(after == state))


def pressed(app: App, said: str) -> App | None:
    """The session after what a turn names was pressed; the same where nothing looks so, None where it is over."""
    look = look_in(said)
    element = next((one for one in app.screen if one.look == look), None)
    return app if element is None else app.after(element)


def key_of(app: App) -> str:
    return f"{app.menu}|{app.pressed}"


def check_app(key: str, source: TaskSource) -> None:
    """Raise RecipeError for other tasks."""
    if "goals" not in source[0].columns:
        raise RecipeError(f"{key}: the tasks are of no app; allowed: tasks 'app'")
