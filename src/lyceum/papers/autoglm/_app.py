"""A small app: menus of buttons, each with a name, a look and a place.

Who plans sees names and looks (``1k2d3p``), who grounds sees looks and places (``k3d5p0``): what to press goes from
one to the other in words, as a look, which is a letter. Which menu holds a button is the app's own and nowhere shown
beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

MENUS, BUTTONS, HOME = "123", "ABCDEFGHI", "0"
LOOKS, PLACES = "abcdefghijklmnop", "0123456789"
_MENU_OF = dict(zip("CGADIBHEF", MENUS * 3, strict=True))
"""The menu that holds each button."""
_LOOK, _PLACE = re.compile("[a-p]"), re.compile("[0-9]")


class Element(NamedTuple):
    """Something to press.

    Attributes:
        name: of a menu, a button, or the way back to the menus.
        look: a letter.
        place: a digit.
    """

    name: str
    look: str
    place: str


@dataclass(frozen=True)
class App:
    """A session.

    Attributes:
        seed: where looks and places of each screen come from.
        goals: the buttons that are to be pressed, in order.
        menu: the one that is open; empty where the menus are shown.
        pressed: how many of the goals were.
    """

    seed: str
    goals: str
    menu: str = ""
    pressed: int = 0

    @property
    def done(self) -> bool:
        return self.pressed == len(self.goals)

    @property
    def names(self) -> str:
        """Of what the screen shows."""
        return HOME + "".join(b for b in BUTTONS if _MENU_OF[b] == self.menu) if self.menu else MENUS

    @property
    def screen(self) -> list[Element]:
        """What is shown, in any order; looks and places differ, and are those of this session and menu."""
        rng = Random(f"app/{self.seed}/{self.menu}")
        names = rng.sample(self.names, len(self.names))
        looks, places = rng.sample(LOOKS, len(names)), rng.sample(PLACES, len(names))
        return [Element(*one) for one in zip(names, looks, places, strict=True)]

    def after(self, element: Element) -> App | None:
        """The session after something was pressed; None after a button that is not the next goal."""
        if element.name in MENUS:
            return replace(self, menu=element.name)
        if element.name == HOME:
            return replace(self, menu="")
        return replace(self, menu="", pressed=self.pressed + 1) if element.name == self.goals[self.pressed] else None

    @property
    def wanted(self) -> str:
        """The name of what should be pressed."""
        goal = self.goals[self.pressed]
        return (goal if _MENU_OF[goal] == self.menu else HOME) if self.menu else _MENU_OF[goal]


def to_planner(app: App) -> str:
    """The screen as the planner sees it, below the next goal: ``1k2d3p?A``."""
    return f"{''.join(f'{element.name}{element.look}' for element in app.screen)}?{app.goals[app.pressed]}"


def to_grounder(screen: Sequence[Element], look: str) -> str:
    """The screen as the grounder sees it, and what to find: ``k3d5p0@d``."""
    return f"{''.join(f'{element.look}{element.place}' for element in screen)}@{look}"


def look_in(text: str) -> str | None:
    """The look that the planner's words say; None where they say none."""
    return text.strip() if _LOOK.fullmatch(text.strip()) else None


def at(screen: Sequence[Element], text: str) -> Element | None:
    """What is at the place that a text says; None where there is nothing, or it says none."""
    place = text.strip()
    if not _PLACE.fullmatch(place):
        return None
    return next((element for element in screen if element.place == place), None)


def drawn_goals(rng: Random, level: int) -> str:
    """So many different buttons."""
    return "".join(rng.sample(BUTTONS, level))


def mutated(rng: Random, goals: str, most: int) -> str:
    """Goals of which one is another, or that have one more or one fewer."""
    others = [button for button in BUTTONS if button not in goals]
    ways = ["change"] + ["add"] * (len(goals) < most) + ["drop"] * (len(goals) > 1)
    way, place = rng.choice(ways), rng.randrange(len(goals))
    if way == "drop":
        return goals[:place] + goals[place + 1 :]
    new = rng.choice(others)
    return goals + new if way == "add" else goals[:place] + new + goals[place + 1 :]
