from math import exp
from random import Random

import pytest
import torch
from fake_task import roll
from guidance_fakes import RIGHT, FakeContext, Source, ask, flat
from role_forest import forest

from lyceum.core.settings import Composition
from lyceum.core.types import Continuation
from lyceum.papers.spell._facts import asked, operations_of, read_question, spelled, to_ask, to_judge, truth, value_of
from lyceum.papers.spell._rewards import (
    agreement,
    answer_reward,
    majority,
    questioner_reward,
    teaches,
    vote_rewards,
)
from lyceum.papers.spell.credit_role_groups import RoleGroups
from lyceum.papers.spell.guidance_questioner_responder_verifier import QuestionerResponderVerifier
from lyceum.papers.spell.tasks_fact_demonstrations import FactDemonstrations
from lyceum.papers.spell.tasks_fact_documents import FactDocuments
from lyceum.utils.errors import RecipeError

FACTS = {"A": 8, "B": 2, "C": 5}
Y, N = True, False


def test_a_question_earns_most_where_half_of_its_answers_are_accepted():
    # (1/4)^2 / (2 / 36) = 36 / 32.
    assert questioner_reward(0.5) == 1
    assert questioner_reward(0.25) == questioner_reward(0.75) == pytest.approx(exp(-1.125))
    assert questioner_reward(0.0) == questioner_reward(1.0) == 0


def test_an_answer_is_accepted_by_the_rule_or_by_most_votes():
    assert majority([Y, N, Y]) is True
    assert majority([N, None, None]) is majority([]) is None
    assert majority([N, Y]) is False, "ties go to the first"
    assert [answer_reward(rule, [Y, N, Y]) for rule in (Y, N)] == [1, 1]
    assert [answer_reward(rule, [N, N, Y]) for rule in (Y, N)] == [1, 0]
    assert answer_reward(N, [None, None]) == 0


def test_votes_are_paid_for_agreeing_and_trained_where_the_rule_agrees_with_most():
    votes = [N, N, Y, None]
    assert vote_rewards(votes) == [1, 1, 0, -1]
    assert agreement(votes) == pytest.approx(2 / 3)
    assert teaches(N, votes, 0.51, 0.99)
    assert not teaches(Y, votes, 0.51, 0.99), "the majority says another thing than the rule"
    assert not teaches(N, [N, N, N], 0.51, 0.99), "nothing differs"
    assert not teaches(N, votes, 0.7, 0.99)
    assert not teaches(N, [None, None, N], 0.51, 0.99)


def test_a_question_is_read_with_its_reference_and_its_truth_is_known_from_the_documents():
    assert read_question("37+A-C=37+A8=45-C5=40#4t0") == ("37+A-C", "4t0")
    assert operations_of("37+A-C", FACTS) == (37, [8, -5])
    assert truth("97+A", FACTS) == 5
    assert truth("37+D", FACTS) is None
    assert truth("37+9", FACTS) == 46
    assert [read_question(text) for text in ("37=37#37", "37+A", "37+A=45", "A+37=45#45")] == [None] * 4


@pytest.mark.parametrize(("text", "value"), [("40", 40), ("4t0", 40), ("0t7", 7), ("7", 7), ("140", None)])
def test_an_answer_has_two_spellings(text, value):
    assert value_of(text) == value
    assert value is None or value_of(spelled(value)) == value


class Playing(FakeContext):
    """Each role says what is written down for its prompt, one text after another, the last for all that follow."""

    def __init__(self, says, **how):
        super().__init__(otherwise=RIGHT, **how)
        self.says, self.prompts = says, []

    async def extend(self, node, n, sampling=None, *, keep=False):
        texts = self.says.get(node.root.text, ["?"])
        self.prompts.append((self.role, node.root.text))
        self.spend(n)
        self.tree.sampled_tokens += n
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        return [node.add_drawn(drawn, texts[min(i, len(texts) - 1)], role=self.role) for i in range(n)]


def task():
    return ask("Q", None, facts=FACTS)


def played(guide, says):
    context = Playing(says)
    tree = roll(guide(flat(2)), context, task())
    guide.observe([tree])
    return [(leaf.role, leaf.completion, leaf.grade.outcome) for leaf in tree.chosen], guide.metrics(), context


def guide_of(**settings):
    return QuestionerResponderVerifier(**{"questions": 1, "facts": 3, "votes": 3} | settings).build(Source(), seed=0)


ASKED = to_ask("A8,B2,C5", [])
WRITTEN = {
    ASKED: ["37+A-C=37+A8=45-C5=40#4t0"],
    asked("", "37+A-C"): ["#1"],
    asked("A8,B2,C5", "37+A-C"): ["#40", "#41"],
    to_judge("37+A-C", "4t0", "40"): ["y", "n", "y"],
    to_judge("37+A-C", "4t0", "41"): ["n", "y", "n"],
}


def test_votes_accept_an_answer_that_the_rule_does_not_and_all_three_roles_are_trained():
    # One of two answers is accepted: the question earns 1. The rule says no to both, and so do
    # most votes on 41, which are trained.
    leaves, metrics, _ = played(guide_of(), WRITTEN)
    assert leaves[0] == ("questioner", "37+A-C=37+A8=45-C5=40#4t0", 1.0)
    assert leaves[1:3] == [("responder", "#40", 1.0), ("responder", "#41", 0.0)]
    assert leaves[3:] == [("verifier", "n", 1.0), ("verifier", "y", 0.0), ("verifier", "n", 1.0)]
    assert (metrics["answers/rescued"], metrics["answers/exact"], metrics["answers/right"]) == (1, 0, 0.5)
    assert (metrics["verifier/right"], metrics["references/right"], metrics["votes/groups"]) == (1, 1, 1)
    assert metrics["votes/agreement"] == pytest.approx(2 / 3)


def test_a_question_that_is_answered_without_documents_or_none_is_dropped():
    leaves, metrics, _ = played(guide_of(), {**WRITTEN, asked("", "37+A-C"): ["#4t0"]})
    assert leaves == [("questioner", "37+A-C=37+A8=45-C5=40#4t0", -0.5)]
    assert metrics["questions/ungrounded"] == 1
    leaves, metrics, _ = played(guide_of(), {ASKED: ["well"]})
    assert leaves == [("questioner", "well", -1.0)]
    assert metrics["questions/form"] == 1


def test_a_questioner_reads_the_questions_that_were_solved_and_their_documents():
    guide = guide_of(facts=1)
    [letter] = guide.letters(Random(0), list(FACTS), [])
    assert guide.letters(Random(0), list(FACTS), [["AC", "37+A-C", "4t0"]]) == ["A", "B", "C"]
    assert letter in FACTS
    guide = guide_of()
    played(guide, WRITTEN)
    again = guide_of()
    again.load_state_dict(guide.state_dict())
    _, metrics, context = played(again, {})
    assert ("questioner", "A8,B2,C5;37+A-C#4t0!") in context.prompts
    assert (metrics["memory/read"], metrics["memory/questions"]) == (1, 1)


def test_what_nobody_solved_is_not_remembered_and_the_memory_is_short():
    unsolved = {**WRITTEN, asked("A8,B2,C5", "37+A-C"): ["#41"]}
    guide = guide_of()
    played(guide, unsolved)
    assert guide.state_dict() == {"memory": {}}
    guide = guide_of(memory=0)
    played(guide, WRITTEN)
    assert guide.state_dict() == {"memory": {}}


def test_questions_are_compared_over_the_step_and_answers_within_their_group():
    # Proposers of two trees: -1 and 1/2, mean -1/4, std 3/4: -1 and 1. Solvers 1, 0 of the first: 1 and -1; 0, 0 of the
    # second: 0.
    found = RoleGroups(together=("proposer",)).build()(forest()).advantage[:, 1]
    torch.testing.assert_close(found, torch.tensor([-1.0, 1, -1, 1, 0, 0]), atol=1e-4, rtol=0)


def test_tasks_without_documents_are_refused():
    with pytest.raises(RecipeError, match="the tasks have no documents"):
        QuestionerResponderVerifier().check_tasks(Source(ask("Q")))


def test_demonstrations_without_mistakes_are_right():
    source = FactDemonstrations(slip=0.0, misjudged=0.0, ungrounded=0.0).build("train", 0)
    for index in range(60):
        prompt, text = source[index].messages[0]["content"], source[index].columns["demonstration"]
        if index % 3 == 2:
            one, other = prompt.partition("=")[2].removesuffix("@").split("~")
            assert text == ("y" if value_of(one) == value_of(other) else "n")
            continue
        shown = prompt.partition("!")[0].partition(";")[0] if index % 3 == 0 else prompt.partition("?")[0]
        facts = {fact[0]: int(fact[1:]) for fact in shown.split(",") if fact}
        question = text.partition("=")[0] if index % 3 == 0 else prompt.partition("?")[2].removesuffix("=")
        if facts:
            assert value_of(text.rpartition("#")[2]) == truth(question, facts)


def test_a_rule_asks_about_as_many_facts_as_the_level_says():
    source = FactDocuments(facts=4, levels=(1, 3)).build("train", 0)
    for index in range(10):
        task = source[index]
        documents, _, question = task.messages[0]["content"].partition("?")
        assert len(documents.split(",")) == 4
        assert sum(map(question.count, "+-")) == task.columns["level"] == (1, 3)[index % 2]
        assert int(task.answer) == truth(question.removesuffix("="), task.columns["facts"])


def test_the_credit_needs_roles():
    (line,) = RoleGroups().conflicts(Composition())
    assert "in a stage without roles" in line
