"""Nothing that came from outside reaches the terminal as something to obey."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lyceum.utils.progress import Console
from lyceum.utils.terminal import QUOTED, printable, quoted

HOSTILE = "\x1b]0;title\x07 \x9b2J \u202egpj \ud800 \r"


def test_control_characters_are_told_by_their_code():
    assert printable(HOSTILE) == "\\x1b]0;title\\x07 \\x9b2J \\u202egpj \\ud800 \\x0d"
    assert printable("one\n\ttwo ü 漢") == "one\n\ttwo ü 漢"


def test_tables_panels_and_lines_pass_nothing_on():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, color_system=None)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(Text(HOSTILE))
    console.print(table, Panel(Text(HOSTILE)), Text(HOSTILE), soft_wrap=True)
    text = out.getvalue()
    assert "\\x1b]0;title" in text
    for character in "\x1b\x07\x9b\u202e\ud800\r":
        assert character not in text


@given(st.recursive(st.integers() | st.text() | st.floats() | st.none(), lambda inner: st.lists(inner), max_leaves=200))
def test_a_quoted_value_is_printable_and_short(value):
    text = quoted(value)
    assert len(text) <= QUOTED
    assert printable(text) == text


def test_an_integer_that_python_would_not_print_is_quoted():
    assert quoted(10**9999) == "an integer of 33216 bits"
