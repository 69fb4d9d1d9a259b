"""An exception over a user's file becomes a line that names the file and what to do."""

import pytest

from lyceum.core.user_files import user_file
from lyceum.utils.errors import RecipeError


def test_the_line_names_key_file_cause_and_cure():
    cause = ValueError("bad\nthing \x1b[2J" + "x" * 1000)
    with pytest.raises(RecipeError) as caught, user_file("model.path", "m/dir", "save it anew"):
        raise cause
    [line] = caught.value.lines
    assert line.startswith("model.path: m/dir: ValueError: bad thing \\x1b[2Jxxx")
    assert line.endswith("...; save it anew")
    assert len(line) < 400
    assert caught.value.__cause__ is cause


def test_a_line_that_is_one_already_stays_as_it_is():
    with pytest.raises(RecipeError, match=r"^steps: got 0$"), user_file("model.path", "m", "save it"):
        raise RecipeError("steps: got 0")


def test_what_ends_a_program_passes():
    with pytest.raises(KeyboardInterrupt), user_file("model.path", "m", "save it"):
        raise KeyboardInterrupt
