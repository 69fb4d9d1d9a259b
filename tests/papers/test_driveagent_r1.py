import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from leaves import leaf
from pydantic import ValidationError

from lyceum.core.types import Origin
from lyceum.papers.driveagent_r1.guidance_forced_modes import ForcedModes
from lyceum.papers.driveagent_r1.tasks_chain_tool_modes import ChainToolModes
from lyceum.tasks.chain import grade


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
