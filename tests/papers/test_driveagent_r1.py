import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from leaves import leaf
from pydantic import ValidationError

from lyceum.core.types import Origin
from lyceum.environment.look import Look
from lyceum.models.see import read_picture
from lyceum.papers.driveagent_r1.guidance_forced_modes import ForcedModes
from lyceum.papers.driveagent_r1.reward_mode_choice import ModeChoice
from lyceum.papers.driveagent_r1.tasks_chain_tool_modes import ChainToolModes
from lyceum.papers.driveagent_r1.tasks_views import Views
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.turns import CALLS, FAILED
from lyceum.tasks.chain import grade
from lyceum.tasks.pictures import Pictures
from lyceum.tasks.pictures import grade as pictures_grade
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import picture_parts


class Context(FakeContext):
    def encode_after(self, path, text):
        return [ord(character) for character in text]

    def judged(self, leaf):
        return RIGHT if leaf.completion.startswith("T") else WRONG


def test_a_group_is_answered_in_each_mode_by_force_and_the_modes_are_contrasted():
    context = Context()
    guide = ForcedModes(marks=["S", "T"]).build(Source(), seed=0)
    tree = roll(guide(flat(5)), context, ask("Q"), 5)
    guide.observe([tree])
    assert [leaf.completion[0] for leaf in tree.chosen] == ["S"] * 3 + ["T"] * 2
    assert {leaf.path()[1].origin for leaf in tree.chosen} == {Origin.PREFIX}, "the mark is not trained"
    assert guide.metrics() == {"groups/contrasted": 1, "accuracy/mode_0": 0, "accuracy/mode_1": 1}


def test_marks_differ():
    with pytest.raises(ValidationError, match=r"got \['S', 'S'\]; allowed: different texts"):
        ForcedModes(marks=["S", "S"])


def test_each_chain_is_demonstrated_in_both_modes():
    source = ChainToolModes(levels=[2]).build("train", 0)
    alone, tool = (source[i].columns["demonstration"] for i in (0, 1))
    assert alone[0] + tool[0] == "ST"
    assert tool[1:] == alone[1:].replace("=", "?")
    assert grade(source[0], leaf(alone)).correct
    assert grade(source[1], leaf(tool)).correct


def pixels(task, place=0):
    return read_picture(list(picture_parts(task.messages))[place])


def test_a_view_among_four_is_the_picture_that_is_asked_about_and_a_look_at_it_shows_it_whole():
    source = Views(scenes=["four"]).build("train", 0)
    alone = Pictures(asks=Views().asks, levels=Views().levels, size=Views().size * 4).build("train", 0)
    for number in range(8):
        task = source[number]
        place, asked = task.messages[0]["content"][1]["text"].split(":")
        left, top, right, bottom = task.columns["edges"]
        assert (left, top) == ((int(place) - 1) % 2, (int(place) - 1) // 2)
        part = pixels(task)[top * 48 : bottom * 48, left * 48 : right * 48]
        assert (part == pixels(alone[number])).all()
        assert (asked, task.answer) == (alone[number].messages[0]["content"][1]["text"], alone[number].answer)
        look = Look(mark="T", units=2, least_side=48).build()
        shown = look.shown(look.reset(task).source, task.columns["edges"])
        assert (read_picture(shown) == part).all()


def test_scenes_have_all_asks_and_levels():
    source = Views().build("train", 0)
    found = {(of["scene"], of["ask"], of["level"]) for of in (source[i].columns for i in range(8))}
    assert len(found) == 8


def test_views_are_demonstrated_alone_up_to_the_look_and_after_it():
    source = Views(scenes=["four"], modes=True).build("train", 0)
    alone, asks, after = (source[i] for i in range(3))
    answer = after.columns["demonstration"]
    call = asks.columns["demonstration"]
    assert alone.columns["demonstration"] == f"S{answer}"
    assert call == "T" + ",".join(map(str, asks.columns["edges"]))
    assert [message["role"] for message in after.messages] == ["user", "assistant", "user"]
    assert after.messages[1]["content"] == call
    assert pixels(after, 1).shape == (48, 48, 3)
    assert pictures_grade(after, leaf(f"{call}{answer}")).correct


def tried(text, calls=0, failed=0):
    end = leaf(text)
    end.stats |= {CALLS: calls, FAILED: failed}
    return end


def paid(settings, *answers):
    leaves, verdicts = [each for each, _ in answers], [verdict for _, verdict in answers]
    grades = run_async(settings.build(Source())(ask("Q"), leaves, None, verdicts))
    return [each.outcome for each in grades]


CHOICE = ModeChoice(alone="S", tool="T", cost=0.125, most=0.2)


def test_an_answer_after_a_look_earns_what_it_gains_over_those_without_less_the_cost():
    # Alone 1 0 0 0: mean 1/4. Right after one look: 1 - 1/4 - 1/8 = 5/8, at most 0.2. Wrong: -1/4 - 1/8, at least -0.2.
    alone = [(tried("S#1"), right) for right in (True, False, False, False)]
    looked = [(tried("T0,0,1,1#1", calls=1), True), (tried("T0,0,1,1#2", calls=1), False)]
    assert paid(CHOICE, *alone, *looked) == [0, 0, 0, 0, 0.2, -0.2]
    wide = ModeChoice(alone="S", tool="T", cost=0.125, most=1)
    assert paid(wide, *alone, *looked)[4:] == [0.625, -0.375]
    # Half of two calls failed: (1 - 1/4 - 2/8) / 2.
    assert paid(wide, *alone, (tried("T#1", calls=2, failed=1), True))[4:] == [0.25]


def test_a_look_where_the_answer_was_known_alone_only_costs():
    # All right alone: 1 - 1 - 1/8.
    assert paid(CHOICE, (tried("S#1"), True), (tried("T#1", calls=1), True)) == [0, -0.125]


def test_without_an_answer_alone_there_is_nothing_to_compare_with():
    assert paid(CHOICE, (tried("T#1", calls=1), True), (tried("T#2", calls=1), False)) == [0, 0]


def test_an_answer_that_keeps_to_no_mode_loses_the_most():
    strays = [(tried("#1"), True), (tried("T#1"), True), (tried("S#1", calls=1), True)]
    assert paid(CHOICE, *strays) == [-0.2] * 3


def test_the_choice_of_a_mode_needs_an_environment_to_call():
    with pytest.raises(RecipeError) as refused:
        load_recipe("grpo", ["reward=[task, mode-choice]"])
    told = refused.value.lines
    assert told[0].startswith("reward.kind: got 'mode-choice' with rollout.kind 'flat'")
