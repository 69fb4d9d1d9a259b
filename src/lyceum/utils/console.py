"""Rich's console for text that comes from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from lyceum.utils.terminal import printable


class Console(RichConsole):
    """Rich's console, which removes control characters from everything printed.

    Plain strings are text: a level named ``[/b]`` is not markup, ``:key:`` not an emoji.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **how})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the program

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # All output becomes characters here, tables and live displays too. Cursor movements of a live display are
        # marked as control by rich itself, and external text never is.
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
