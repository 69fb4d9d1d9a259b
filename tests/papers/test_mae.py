import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from leaves import leaf

from lyceum.core.types import Continuation, Task
from lyceum.papers.mae.guidance_proposer_solver_judge import ProposerSolverJudge
from lyceum.papers.mae.tasks_chain_verdicts import ChainVerdicts, is_chain


class Writable(Source):
    """Every question but ``drift`` is a task."""

    def proposed(self, text, like):
        return "format" if text == "drift" else Task(text, ({"role": "user", "content": text},))


class Playing(FakeContext):
    """The proposer writes ``questions``, the judge says what ``says`` has for its prompt."""

    def __init__(self, questions, says, **how):
        super().__init__(**how)
        self.questions, self.says = questions, says

    async def extend(self, node, n, sampling=None, *, keep=False):
        texts = {"proposer": self.questions, "judge": [self.says.get(node.root.text, "?")] * n}.get(self.role)
        if texts is None:
            return await super().extend(node, n, sampling, keep=keep)
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        self.spend(n)
        self.tree.sampled_tokens += n
        return [node.add_drawn(drawn, text, role=self.role) for text in texts]


def played(context, **settings):
    judged = {"judges_question": "{question}@", "judges_answer": "@", "marks": ["", ""], "highest": 1}
    guide = ProposerSolverJudge(questions=len(context.questions), **judged | settings).build(Writable(), seed=0)
    tree = roll(guide(flat(2)), context, ask("Q"))
    guide.observe([tree])
    return {(leaf.role, leaf.completion): leaf.grade.outcome for leaf in tree.chosen}, guide.metrics()


def test_each_role_is_paid_by_what_the_others_write():
    # Of the answers s0 and s1 to "a" the judge finds the first right: s = 1/2. Proposer (1 + 1/2 + 1) / 3, answers
    # (1 + 1) / 2 and (0 + 1) / 2.
    says = {"a@": "1", "a\ns0\n@": "1", "a\ns1\n@": "0"}
    paid, metrics = played(Playing(["a"], says, grades={"a": [RIGHT, RIGHT]}))
    assert paid["proposer", "a"] == pytest.approx(2.5 / 3)
    assert (paid["solver", "s0"], paid["solver", "s1"]) == (1.0, 0.5)
    assert (paid["judge", "1"], paid["judge", "0"]) == (1.0, 1.0)
    assert metrics["judge/right"] == 0.5, "a rule finds both answers right"
    assert metrics["judge/found"] == 1
    assert metrics["questions/answered"] == 1


def test_a_bad_question_is_not_answered_and_an_unread_judgement_earns_nothing():
    paid, metrics = played(Playing(["b"], {"b@": "0"}))
    assert paid == {("proposer", "b"): pytest.approx(1 / 3), ("judge", "0"): 1.0}
    paid, metrics = played(Playing(["c"], {"c@": "well"}))
    assert paid == {("proposer", "c"): None, ("judge", "well"): 0.0}
    assert metrics["judgements/unread"] == 1


def test_a_question_that_no_rule_reads_is_answered_and_counted():
    says = {"drift@": "1", "drift\ns0\n@": "1", "drift\ns1\n@": "1"}
    paid, metrics = played(Playing(["drift"], says, otherwise=WRONG))
    assert paid["solver", "s0"] == 1.0
    assert metrics["questions/drifted"] == metrics["questions/drifted/format"] == 1
    assert "judge/right" not in metrics


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<score>7</score>", 0.7),
        ("so <score>10</score>", 1.0),
        ("<score>11</score>", None),
        ("7", None),
        ("<score>x", None),
    ],
)
def test_a_score_is_a_whole_number_between_its_marks(text, score):
    assert ProposerSolverJudge().score(leaf(text)) == score


def test_a_text_is_worth_the_mean_of_its_judgements_that_can_be_read():
    # Of three judgements 1, 0 and one that says nothing: 1/2, on neither side.
    guide = ProposerSolverJudge(marks=("", ""), highest=1).build(Writable(), seed=0)
    assert guide.score([leaf("1"), leaf("0"), leaf("well")]) == 0.5
    assert guide.score([leaf("well")]) is None


def test_every_text_is_judged_as_often_as_the_settings_say():
    says = {"a@": "1", "a\ns0\n@": "1", "a\ns1\n@": "0"}
    _, metrics = played(Playing(["a"], says, grades={"a": [RIGHT, RIGHT]}), judgements=3)
    assert metrics["judgements/read"] == 3 * (1 + 2)


def test_verdicts_to_imitate_are_of_both_kinds_and_right():
    tasks = [ChainVerdicts(levels=(2, 3), size=100).build("train", 0)[i] for i in range(80)]
    assert {len(task.messages) for task in tasks} == {1, 3}
    for task in tasks:
        worked, _, verdict = task.columns["demonstration"].rpartition("@")
        asked, *answered = [message["content"] for message in task.messages]
        if answered:
            assert verdict == str(int(answered[0].rpartition("#")[2] == worked.rpartition("#")[2]))
        else:
            assert (worked, verdict) == ("", str(int(is_chain(asked.removesuffix("@")))))


@pytest.mark.parametrize(
    ("text", "chain"),
    [("37+8-2=", True), ("7+1=", True), ("07+1=", False), ("37+=", False), ("37+8", False), ("37+80=", False)],
)
def test_a_chain_is_one_to_the_letter(text, chain):
    assert is_chain(text) == chain
