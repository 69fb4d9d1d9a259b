import asyncio
from math import sqrt
from random import Random
from types import SimpleNamespace

import pytest
from fake_task import roll
from guidance_fakes import RIGHT, FakeContext, Source, ask

from lyceum.core.types import Continuation, Exchange, Origin
from lyceum.papers.hiersearch._refiner import Found, most_relevant, refined, relevance
from lyceum.papers.hiersearch._stores import passages, perfect
from lyceum.papers.hiersearch.environment_fact_store import FactStore
from lyceum.papers.hiersearch.guidance_hierarchical_search import HierarchicalSearch
from lyceum.papers.hiersearch.tasks_store_demonstrations import StoreDemonstrations, runs
from lyceum.papers.hiersearch.tasks_store_questions import StoreQuestions
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

FIRST = Found("37+8?", ("38+8=46", "37+8=45", "37+7=44"))
SECOND = Found("37+8=45+2?", ("45+2=47", "46+2=48", "45+3=48"))


def test_relevance_is_a_cosine_of_characters_and_pairs():
    # "ab" has a, b, ab; "abc" has a, b, c, ab, bc: three in common, of lengths sqrt(3) and sqrt(5).
    assert relevance("ab", "abc") == pytest.approx(3 / sqrt(15))
    assert relevance("ab", "c") == relevance("", "c") == 0


def test_what_bears_on_a_step_is_kept_and_of_the_rest_what_bears_on_the_conclusion():
    # Of three passages int(3 * 0.3) = 0, so one. Of the four that are left one: 37+7=44 has 4 and 7 twice each, the
    # others have a 4 twice, or once, and no 7.
    assert refined([FIRST, SECOND], "47", 0.3) == ["37+8=45", "45+2=47", "37+7=44"]
    assert refined([], "47", 0.3) == []


def test_with_a_larger_share_more_is_kept_in_the_order_in_which_it_was_found():
    # Two of three: beside 37+8=45 that with 3, 7, + and 7 and the pairs 37 and 7+ in common with 37+8?.
    assert most_relevant(FIRST.passages, "37+8?", 0.7) == ["37+8=45", "37+7=44"]
    assert len(refined([FIRST, SECOND], "47", 1.0)) == 6
    assert most_relevant(FIRST.passages, "", 0.3) == ["38+8=46"], "ties go to the first"


@pytest.mark.parametrize(("agent", "operand", "known"), [("local", 8, True), ("local", -8, False), ("web", -8, True)])
def test_a_store_has_what_is_asked_only_where_it_has_its_sign(agent, operand, known):
    found = passages(agent, 37, operand, Random(0), 3)
    assert (f"37{operand:+d}={37 + operand}" in found) == known
    assert len(set(found)) == 3
    assert all((one[2] == "+") == (agent == "local") for one in found)


def test_an_agent_without_mistakes_is_wrong_where_its_store_does_not_know():
    assert perfect("local", 37, [8, 2]) == ["37+8=45", "45+2=47"]
    assert perfect("web", 37, [8]) == ["37-8=29"]


def stepped(agent, said, before=()):
    environment = FactStore(passages=3).build()
    task = SimpleNamespace(columns={"agent": agent})
    turn = SimpleNamespace(address=1, path_tokens=list)
    context = SimpleNamespace(seed=lambda *key: 5, encode_after=lambda path, text: [ord(c) for c in text])
    state = environment.replay(task, [Exchange(*one) for one in before])
    return asyncio.run(environment.step(state, turn, said, context))


def test_an_agent_searches_its_store_and_a_planner_asks_an_agent():
    found = "".join(map(chr, stepped("local", "37+8?").tokens))
    assert "37+8=45" in found.removesuffix(";").split(",")
    assert "".join(map(chr, stepped("planner", "37+8+2a?").tokens)) == "37+8=45,45+2=47;"
    assert stepped("local", "#45").end
    assert stepped("planner", "37+8?").end, "a planner has no store"


class Written(FakeContext):
    """The planner says ``turns``, one after another."""

    def __init__(self, *turns, **how):
        super().__init__(**how)
        self.turns = list(turns)

    async def extend(self, node, n, sampling=None, *, keep=False):
        assert self.role == "planner", "agents are asked by the stage's rollout"
        self.tree.sampled_tokens += n
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        return [node.add_drawn(drawn, self.turns.pop(0), role=self.role) for _ in range(n)]

    def encode_after(self, path, text):
        return [ord(character) for character in text]

    def judged(self, leaf):
        return RIGHT


async def agents(context, start, n):
    """An agent that searches twice and comes to 47."""
    assert context.task.columns["agent"] == context.role
    node = start
    for search in (FIRST, SECOND):
        node = node.add_drawn(Continuation([7], [-1.0], [-1.0], [0], "stop"), search.hypothesis, role=context.role)
        node = node.add([8], Origin.TOOL, ",".join(search.passages) + ";")
    return [node.add_drawn(Continuation([7], [-1.0], [-1.0], [0], "stop"), "#47", role=context.role)]


def planned(*turns, **settings):
    guide = HierarchicalSearch(samples=1, **settings).build(Source(), seed=0)
    tree = roll(guide(agents), Written(*turns), ask("37+8+2-5="))
    guide.observe([tree])
    [leaf] = tree.chosen
    return leaf, [node.text for node in leaf.path() if node.origin is Origin.TOOL], guide.metrics()


def test_a_planner_reads_the_refined_evidence_of_an_agent_and_alone_is_trained():
    leaf, read, metrics = planned("37+8+2a?", "47-5b?", "#42")
    assert read == ["37+8=45,45+2=47,37+7=44;"] * 2
    assert (leaf.role, leaf.completion) == ("planner", "37+8+2a?47-5b?#42")
    assert (metrics["questions/local"], metrics["questions/web"], metrics["questions/misasked"]) == (1, 1, 0)
    # Six passages an answer, three of them kept; 47 is right for 37+8+2 and not for 47-5.
    assert (metrics["evidence/found"], metrics["evidence/kept"]) == (12, 6)
    assert metrics["agents/right"] == 0.5
    assert metrics["evidence/needed_kept"] == 1


def test_without_a_refiner_a_planner_reads_all_that_an_agent_wrote():
    _, read, metrics = planned("37+8+2a?", "#47", keep=None)
    assert read == ["37+8?38+8=46,37+8=45,37+7=44;37+8=45+2?45+2=47,46+2=48,45+3=48;#47;"]
    assert metrics["evidence/kept"] == 0


def test_a_question_to_the_wrong_agent_or_to_none_is_counted():
    _, read, metrics = planned("37+8b?", "37c?", "#45")
    assert read[1] == ";"
    assert (metrics["questions/misasked"], metrics["questions/none"]) == (1, 1)
    assert "agents/right" not in metrics


def test_a_planner_that_asks_without_end_is_truncated():
    leaf, read, _ = planned("1+1a?", "1+1a?", "1+1a?", most_questions=2)
    assert (len(read), leaf.finish) == (2, "length")


def test_agents_need_something_to_search():
    with pytest.raises(RecipeError, match="in which agents have nothing to search"):
        load_recipe("grpo", ["guidance=[hierarchical-search]"])


def test_demonstrations_without_mistakes_are_right():
    source = StoreDemonstrations(misread=0.0, misasked=0.0).build("train", 0)
    of_planners = 0
    for task in (source[i] for i in range(60)):
        chain, text = task.messages[0]["content"], task.columns["demonstration"]
        of_planners += chain[0] not in "ab"
        assert text.rpartition("#")[2] == task.answer, (chain, text)
        assert task.answer is not None
    assert 25 < of_planners < 55


def test_operations_of_one_sign_are_asked_together():
    assert runs([8, 2, -5, 1, 1, 1]) == [[8, 2], [-5], [1, 1], [1]]


def test_questions_are_of_the_sign_that_an_agent_knows():
    source = StoreQuestions(levels=[4]).build("train", 0)
    tasks = [source[i] for i in range(12)]
    assert [task.columns["agent"] for task in tasks[:3]] == ["local", "web", "planner"]
    assert "-" not in "".join(task.messages[0]["content"] for task in tasks[::3])
    assert "+" not in "".join(task.messages[0]["content"] for task in tasks[1::3])
    assert {task.columns["level"] for task in tasks[::3]} == {1, 2}
    assert {task.columns["level"] for task in tasks[2::3]} == {4}
