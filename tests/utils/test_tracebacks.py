"""A traceback begins where the user's own code does, and has an end."""

from functools import partial

import pytest

from lyceum.reward.function_worker import load_function, serve
from lyceum.utils.numbers import real
from lyceum.utils.tracebacks import user_traceback


def raised(call) -> str | None:
    """Of what is raised inside the call, without the frame of this test."""
    with pytest.raises(Exception) as found:  # noqa: PT011, whatever it is
        call()
    assert found.value.__traceback__ is not None
    return user_traceback(found.value.with_traceback(found.value.__traceback__.tb_next))


def test_it_begins_where_the_users_file_does_and_goes_on_to_the_end(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import json\ndef read(completion):\n    return json.loads(completion)\n")
    work = serve(str(file), "read", "function", None, {})
    head, first, code, *rest = (raised(partial(work, {"completion": "{"})) or "").splitlines()
    assert head == "Traceback (most recent call last):"
    assert first == f'  File "{file}", line 3, in read'
    assert code == "    return json.loads(completion)"
    assert any("json/decoder.py" in line for line in rest)
    assert rest[-1].startswith("json.decoder.JSONDecodeError: ")


def test_lyceums_own_frames_are_none_of_the_users():
    assert raised(partial(real, "x", "the reward")) is None


def test_what_it_came_from_is_told_and_its_length_is_bounded():
    def deep(n):
        try:
            raise KeyError("x" * 10_000)
        except KeyError as error:
            raise ValueError("\n".join(map(str, range(n)))) from error

    text = raised(lambda: deep(10_000)) or ""
    assert "The above exception was the direct cause" in text
    assert len(text.splitlines()) <= 41
    assert max(map(len, text.splitlines())) <= 300
    assert text.endswith("9999")


def test_a_line_that_is_no_python_is_named(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("x = 1\ndef reward(:\n")
    with pytest.raises(ValueError, match=r"cannot be imported: SyntaxError") as found:
        load_function(str(file), "reward", key="reward.function")
    assert f'File "{file}", line 2' in str(found.value)
    file.write_text("x = 1\ny = x + nothing\n")
    with pytest.raises(ValueError, match=r"cannot be imported: NameError") as found:
        load_function(str(file), "reward", key="reward.function")
    assert f'File "{file}", line 2, in <module>' in str(found.value)
