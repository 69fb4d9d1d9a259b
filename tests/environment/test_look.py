"""A look shows the part of the picture that is asked for, enlarged, and says why where it shows none."""

import numpy as np
import pytest
from fake_task import FakeTask
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Task
from lyceum.environment.look import LONGEST, Look, part_of
from lyceum.models.see import data_uri, read_picture
from lyceum.tasks.chain import Chain
from lyceum.tasks.pictures import Pictures
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import picture_parts

QUARTERS = np.zeros((40, 60, 3), np.uint8)
"""Height 40, width 60: red, green, blue and white, from the left and the upper row on."""
for place, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)]):
    QUARTERS[place // 2 * 20 : place // 2 * 20 + 20, place % 2 * 30 : place % 2 * 30 + 30] = colour
TASK = Task(
    "t", ({"role": "user", "content": [{"type": "image", "image": data_uri(QUARTERS)}, {"type": "text", "text": "?"}]},)
)


def looked(settings, said, state=None):
    environment = settings.build()
    return run_async(environment.step(state or environment.reset(TASK), Node(None, [1], 0), said, FakeTask()))


def call(**arguments):
    inner = ", ".join(f'"{name}": {value}' for name, value in arguments.items())
    return f'<tool_call>{{"name": "look", "arguments": {{{inner}}}}}</tool_call>'


def shown(observed):
    [source] = picture_parts(observed.messages)
    return read_picture(source)


@pytest.mark.parametrize(
    ("said", "colour"),
    [("T0,0,1,1", (255, 0, 0)), ("T1,0,2,1", (0, 255, 0)), ("T0,1,1,2\n", (0, 0, 255)), ("T1,1,9,9", (255,) * 3)],
)
def test_the_part_that_a_marked_turn_names_is_shown_enlarged_in_a_users_message(said, colour):
    # 9 lies beyond the edge, which is 2, and is taken for it.
    observed = looked(Look(mark="T", units=2, least_side=40), said)
    pixels = shown(observed)
    assert pixels.shape == (40, 60, 3)  # 20 x 30, twice as large
    assert (pixels == np.array(colour)).all()
    assert (observed.messages[0]["role"], observed.calls, observed.failed) == ("user", 1, 0)
    assert observed.counts == {"looks": 1}
    assert not observed.end


def test_a_tool_call_is_answered_by_the_user_or_where_templates_show_pictures_there_by_the_tool():
    said = call(left=500, top=0, right=1000.0, bottom=500)
    for role in ("tool", "user"):
        observed = looked(Look(role=role), said)
        assert observed.messages[0]["role"] == role
        assert shown(observed).shape == (448, 672, 3)


def test_a_turn_that_asks_for_no_look_ends_the_trajectory():
    assert looked(Look(mark="T"), "S1#2").end
    assert looked(Look(), "4").end


@pytest.mark.parametrize(
    ("settings", "said", "why"),
    [
        (Look(mark="T"), "Ta1", "four numbers are needed"),
        (Look(mark="T"), "T1,2,3", "four numbers are needed"),
        (Look(mark="T", units=2), "T1,0,1,2", "the part is smaller than 0.02 of the picture each way"),
        (Look(mark="T", units=2, least_share=0), "T1,1,0,0", "the part is smaller than 0 of the picture each way"),
        (Look(), call(left=0, top=0, right=9, bottom=500), "the part is smaller than 0.02 of the picture each way"),
        (Look(), call(left=0, top=0, right='"x"', bottom=9), "left, top, right, bottom have to be numbers"),
        (Look(), call(left=0), "left, top, right, bottom have to be numbers"),
        (Look(), '<tool_call>{"name": "zoom", "arguments": {}}</tool_call>', "no tool 'zoom'; allowed: look"),
    ],
)
def test_a_look_that_cannot_be_had_says_why_and_is_counted_as_failed(settings, said, why):
    observed = looked(settings, said)
    [message] = observed.messages
    assert message["content"] == [{"type": "text", "text": f"error: {why}"}]
    assert (observed.failed, observed.counts) == (1, {"refused": 1})


def test_a_part_that_no_processor_takes_is_refused_and_ends_no_run():
    # 300 x 2 pixels: read_picture refuses one side of more than 100 times the other, which would end the run.
    wide = data_uri(np.zeros((200, 300, 3), np.uint8))
    environment = Look(mark="T", units=100, least_share=0.001, least_side=4).build()
    state = environment.reset(Task("t", ({"role": "user", "content": [{"type": "image", "image": wide}]},)))
    observed = run_async(environment.step(state, Node(None, [1], 0), "T0,50,100,51", FakeTask()))
    assert "more than 100 times the other" in observed.messages[0]["content"][0]["text"]


def test_looks_are_counted_over_the_trajectory_also_where_its_turns_are_replayed():
    settings = Look(mark="T", units=2, times=2)
    first = looked(settings, "T0,0,1,1")
    assert looked(settings, "T0,0,1,1", first.state).failed == 0
    stood = settings.build().replay(TASK, [Exchange("T0,0,1,1", ""), Exchange("T0,0,1,1", "")])
    assert looked(settings, "T0,0,1,1", stood).messages[0]["content"][0]["text"] == "error: no more than 2 looks"
    with_reward = Look(mark="T", units=2, times=2, failed_reward=-0.5)
    assert looked(with_reward, "T0,0,1,1", stood).reward == -0.5


@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70)), st.tuples(*[st.floats(0, 1)] * 4), st.sampled_from([1, 8, 300])
)
def test_any_part_has_at_least_a_pixel_and_keeps_within_the_longest_side(size, ends, least):
    (left, right), (top, bottom) = sorted(ends[:2]), sorted(ends[2:])
    pixels = np.zeros((*size, 3), np.uint8)
    part = part_of(pixels, (left, top, right, bottom), least)
    assert min(part.shape[:2]) >= 1
    assert max(part.shape[:2]) <= max(LONGEST, *size)
    assert min(part.shape[:2]) >= min(least, 50) or max(part.shape[:2]) >= LONGEST - 1


def test_a_part_that_is_large_already_stays_as_it_is():
    pixels = np.asarray(Image.effect_noise((200, 100), 50).convert("RGB"))
    assert (part_of(pixels, (0.5, 0, 1, 1), 48) == pixels[:, 100:]).all()


def test_tasks_without_pictures_are_refused():
    Look().check_tasks(Pictures().build("train", 0))
    with pytest.raises(RecipeError, match=r"environment\.look: the tasks show no picture"):
        Look().check_tasks(Chain().build("train", 0))


def test_the_policy_is_told_of_the_tool_in_the_units_that_it_writes():
    [schema] = Look(units=100).tools
    assert schema["function"]["parameters"]["properties"]["right"] == {"type": "number", "minimum": 0, "maximum": 100}
    assert Look(mark="T").tools == ()
