import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from pydantic import ValidationError

from lyceum.core.types import Task
from lyceum.papers.clpo.guidance_restructure import Restructure
from lyceum.papers.clpo.tasks_chain_rewritings import ChainRewritings


class Readable(Source):
    def proposed(self, text, like):
        return "format" if text == "s1" else Task(text, ({"role": "user", "content": text},))


def restructured(grades, samples=4, **settings):
    context = FakeContext(grades)
    guide = Restructure(simplify="{problem}<", diversify="{problem}?", **settings).build(Readable(), seed=0)
    tree = roll(guide(flat(samples)), context, ask("Q"))
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_a_hard_task_is_made_easier_and_the_rewriting_earns_the_gain():
    # One of four right: hard. The first rewriting, s0, is answered rightly by 3 of 4: 3/4 - 1/4. The second is no task.
    tree, context, metrics = restructured({"Q": [RIGHT, WRONG], "s0": [WRONG, RIGHT]}, rewritings=2)
    written = [leaf for leaf in tree.chosen if leaf.root.text == "Q<"]
    assert [leaf.grade.outcome for leaf in written] == [0.5, -1.0]
    assert context.asked == [("Q", 4), ("Q<", 2), ("s0", 4)]
    assert metrics["groups/simplify"] == 1
    assert metrics["simplify/before"] == 0.25
    assert metrics["simplify/after"] == 0.75
    assert metrics["rewritings/rejected"] == 1


def test_a_medium_task_becomes_another_one_and_an_easy_one_stays():
    _, context, metrics = restructured({"Q": [RIGHT, RIGHT, WRONG]}, rewritings=1)
    assert context.asked[1] == ("Q?", 1)
    assert metrics["groups/diversify"] == 1
    _, context, metrics = restructured({"Q": [RIGHT]})
    assert context.asked == [("Q", 4)]
    assert metrics["rewritings/all"] == 0


def test_hard_is_not_above_medium():
    with pytest.raises(ValidationError, match=r"hard: got 0\.5 with medium 0\.25; allowed: at most that"):
        Restructure(hard=0.5, medium=0.25)


def test_easier_chains_lack_the_last_operation_and_others_have_as_many():
    source = ChainRewritings(levels=[3]).build("train", 0)
    for i in range(20):
        chain, written = source[i].messages[-1]["content"], source[i].columns["demonstration"]
        signs = [text.count("+") + text.count("-") for text in (chain, written)]
        assert signs == ([3, 2] if chain.endswith("<") else [3, 3])
