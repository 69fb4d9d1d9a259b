import asyncio
from types import SimpleNamespace

import pytest
from leaves import task as any_task

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Exchange, Origin
from lyceum.papers.baichuan_m2._cases import Record, meets, read, ruled, written
from lyceum.papers.baichuan_m2.environment_patient import Patient
from lyceum.papers.baichuan_m2.reward_case_rubric import CaseRubric, among_the_best, brevity
from lyceum.papers.baichuan_m2.tasks_case import Case, grade
from lyceum.papers.baichuan_m2.tasks_case_demonstrations import CaseDemonstrations
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

# After b come c and d, which tell the diagnosis: 1 + 3 for c; then e, the red flag; f and a say nothing.
RECORD = Record("b", "ce")
TASK = any_task("=4!", record="b:ce")


class Model:
    """Says one text, and notes what it was asked."""

    def __init__(self, says):
        self.says, self.asked = says, []

    def render(self, messages):
        return [ord(c) for message in messages for c in message["content"]]

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def ask(self, prefix, n, sampling, *, key):
        self.asked.append((self.decode(prefix), key))
        return [SimpleNamespace(tokens=[ord(c) for c in self.says])]


def consulted(said, model, simulated=True, before=()):
    environment = Patient(simulated=simulated).build()
    state = environment.replay(TASK, [Exchange(*one) for one in before])
    return asyncio.run(environment.step(state, SimpleNamespace(address=7), said, model))


def answer(text):
    """A leaf that the policy wrote, a token per character."""
    node = Node.prompt([1], "b:ce?")
    node = node.add_drawn(Continuation([*map(ord, text)], *[[-1.0] * len(text)] * 2, [0] * len(text), "stop"), text)
    return node


def test_the_rule_writes_another_rubric_for_each_case():
    assert RECORD.conclusion == "=4!"
    assert written(ruled(RECORD)) == "c2d1e2f-1a-1=44!3"
    assert written(ruled(Record("b", "a"))) == "c1d1e2f-1a-1=14!-2"
    assert read("c2d1e2f-1a-1=44!3") == ruled(RECORD)
    assert [read(text) for text in ("", "c2d", "cd", "f-1a-1", "c2 d1")] == [None] * 5


@pytest.mark.parametrize(
    ("said", "met"),
    [("ce=4!", "ce=4!"), ("c=4", "c=4"), ("=4e!", "!"), ("fa=14!", "fa!"), ("c4", "c")],
)
def test_criteria_are_met_before_and_in_the_conclusion(said, met):
    found = [item.what for item in ruled(RECORD) if meets(said, item)]
    assert sorted("".join(found)) == sorted(met)


def test_the_patient_is_the_model_which_reads_the_record_and_is_heard_also_where_it_is_wrong():
    model = Model("n")
    found = consulted("c", model, before=[("d", "n")])
    assert model.asked == [("b:ce@c", ("patient", 7))]
    assert found.messages[0]["content"] == "n"
    assert found.counts == {"answered": 1, "untrue": 1, "unreadable": 0, "repeated": 0}
    assert found.key == "b?dc"


def test_what_is_no_answer_gives_way_to_the_record_and_no_question_ends_it():
    found = consulted("c", Model("47"), before=[("c", "y")])
    assert (found.messages[0]["content"], found.failed) == ("y", 1)
    assert found.counts == {"answered": 1, "untrue": 0, "unreadable": 1, "repeated": 1}
    assert consulted("=4!", Model("y")).end
    assert consulted("c", model := Model("n"), simulated=False).messages[0]["content"] == "y"
    assert not model.asked


def test_an_answer_earns_its_share_of_the_points_and_short_ones_of_the_best_a_bonus():
    # 12 points: c 2, d 1, e 2, = 4, ! 3. cde=4! has all, as with c again, in 6 and 7 tokens; =4! has 7 points, fa=9 -2.
    # The score that 8 of 10 do not exceed is 1, so that the first two are eligible.
    texts = ["cde=4!", "cdec=4!", "=4!", "fa=9"]
    model = Model("c2d1e2f-1a-1=44!3")
    grades = asyncio.run(CaseRubric(brevity=0.5).grade(TASK, [*map(answer, texts)], model))
    assert model.asked == [("b:ce&", ("case-rubric",))]
    assert [one.outcome for one in grades] == pytest.approx([1.5, 1, 7 / 12, 0])
    assert [one.parts["eligible"] for one in grades] == [1, 1, 0, 0]
    assert grades[0].parts == {"agrees": 1, "eligible": 1, "brevity": 0.5}


def test_what_is_no_rubric_leaves_the_group_ungraded_and_another_one_is_counted():
    leaves = [answer("=4!"), answer("=5")]
    assert [one.outcome for one in asyncio.run(CaseRubric().grade(TASK, leaves, Model("ce")))] == [None, None]
    other = asyncio.run(CaseRubric().grade(TASK, leaves, Model("=51")))
    assert [(one.outcome, one.parts["agrees"]) for one in other] == [(0, 0), (1, 0)]
    own = asyncio.run(CaseRubric(generated=False).grade(TASK, leaves, None))
    assert own[0].outcome == pytest.approx(7 / 12)


def test_no_answer_is_eligible_where_the_best_are_not_good_enough():
    scores = [0.1, 0.2, 0.5, 0.5, 0.3]
    assert among_the_best(scores, quantile=0.8, threshold=0.5) == [False, False, True, True, False]
    assert among_the_best(scores, quantile=0.8, threshold=0.6) == [False] * 5
    assert among_the_best([], quantile=0.8, threshold=0.6) == []


def test_brevity_is_between_the_shortest_and_the_longest_of_the_eligible():
    assert brevity([4, 8, 6, 2], [True, True, True, False]) == [1, 0, 0.5, 0]
    assert brevity([4, 4, 9], [True, True, False]) == [0, 0, 0]
    assert brevity([4, 5], [False, False]) == [0, 0]


def test_a_dialogue_is_graded_by_what_the_doctor_said_alone():
    node = answer("c").add([ord("y")], Origin.PROMPT, "y")
    leaf = node.add_drawn(Continuation([61, 52], [-1.0] * 2, [-1.0] * 2, [0] * 2, "stop"), "=4!")
    assert grade(TASK, leaf).correct
    found = asyncio.run(CaseRubric().grade(TASK, [leaf], Model("c2y9=44!3")))
    assert found[0].outcome is None  # y is no finding: no rubric


def test_demonstrations_without_mistakes_are_right():
    source = CaseDemonstrations(careless=0, error=0).build("train", 0)
    for task in (source[i] for i in range(0, 80, 4)):
        assert task.columns["demonstration"].endswith(Record(*task.columns["record"].split(":")).conclusion)
    for i in range(2, 40, 4):
        complaint, others = source[i].columns["record"].split(":")
        asked = source[i].messages[0]["content"][-1]
        assert source[i].columns["demonstration"] == ("y" if asked in complaint + others else "n")
    assert read(source[3].columns["demonstration"])


def test_a_prompt_shows_the_record_or_the_complaint():
    whole, complaint = (Case().build("train", 0)[i] for i in range(2))
    assert (whole.columns["shown"], whole.messages[0]["content"]) == ("record", f"{whole.columns['record']}?")
    assert (complaint.columns["shown"], complaint.messages[0]["content"]) == (
        "complaint",
        f"{complaint.columns['record'][0]}?",
    )


def test_other_tasks_are_refused():
    for part in (CaseRubric(), Patient()):
        with pytest.raises(RecipeError, match="the tasks have no record; allowed: tasks 'case'"):
            part.check_tasks(Chain().build("train", 0))
