import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Continuation
from lyceum.papers.pilotrl.guidance_global_plan import GlobalPlan
from lyceum.papers.pilotrl.tasks_chain_plans import ChainPlans


class Planning(FakeContext):
    """The planner writes ``texts``; what is executed is graded by the prompt."""

    def __init__(self, texts=(), **how):
        super().__init__(**how)
        self.texts = texts

    async def extend(self, node, n, sampling=None, *, keep=False):
        if self.role != "planner":
            return await super().extend(node, n, sampling, keep=keep)
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        self.spend(n)
        self.tree.sampled_tokens += n
        return [node.add_drawn(drawn, text, role=self.role) for text in self.texts]


def planned(context, task=None, **settings):
    guide = GlobalPlan(ask="{problem}?", between=",", plans=max(1, len(context.texts)), **settings).build(
        Source(), seed=0
    )
    tree = roll(guide(flat(2)), context, task or ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def test_a_given_plan_is_followed_and_what_is_done_of_it_is_paid():
    # The executions say s0 and s1: of the steps s1 and x the second one did one of two.
    task = ask("Q", hints=[{"tier": "planning", "text": "s1,x"}])
    tree, metrics = planned(Planning(grades={"Q|s1,x": [RIGHT, WRONG]}), task, phase="follow", adherence=0.5)
    assert [leaf.grade.outcome for leaf in tree.chosen] == [1.0, 0.25]
    assert [leaf.grade.verdict for leaf in tree.chosen] == [True, False]
    assert metrics["adherence/mean"] == 0.25


@pytest.mark.parametrize(("phase", "roles"), [("plan", {"planner"}), ("both", {"planner", "executor"})])
def test_a_written_plan_earns_the_accuracy_of_its_executions_which_are_trained_in_the_last_phase(phase, roles):
    context = Planning(["a", "b"], grades={"Q|a": [RIGHT, WRONG], "Q|b": [RIGHT]})
    tree, metrics = planned(context, phase=phase, followed=0)
    assert [leaf.grade.outcome for leaf in tree.chosen if leaf.role == "planner"] == [0.5, 1.0]
    assert {leaf.role for leaf in tree.chosen} == roles
    assert metrics["plans/told_apart"] == 1


def test_a_written_plan_earns_how_much_of_it_is_done():
    # The executions say s0 and s1, none of them right. Of s1 one does all, of s1,x half: means 1/2 and 1/4; of R3 none.
    texts = ["s1", "s1,x", "R3"]
    context = Planning(texts, grades={f"Q|{text}": [WRONG, WRONG] for text in texts})
    tree, metrics = planned(context, phase="plan", followed=2.0)
    assert [leaf.grade.outcome for leaf in tree.chosen] == [1.0, 0.5, 0.0]
    assert metrics["plans/followed"] == 0.25
    assert metrics["plans/steps"] == pytest.approx(4 / 3)


def test_a_plan_without_a_step_is_not_executed():
    tree, metrics = planned(Planning([" , "], grades={}), phase="plan")
    assert [leaf.grade.outcome for leaf in tree.chosen] == [0.0]
    assert metrics["plans/empty"] == 1


def test_a_plan_that_states_the_answer_is_not_executed():
    context = Planning(["it is 48"], grades={})
    tree, metrics = planned(context, ask("Q", "48"), phase="plan")
    assert [leaf.grade.outcome for leaf in tree.chosen] == [0.0]
    assert metrics["plans/leaked"] == 1


def test_steps_count_in_their_order_until_the_first_that_is_missing():
    done = GlobalPlan(before="|", between=",").done
    assert done("|45,43,48", "37+8=45-2=43+5=48#48") == 1
    assert done("|43,45", "37+8=45-2=43") == 0.5
    assert done("|", "37") == 1
    assert done("|4", "37+8=45") == 0, "a step is a whole word"


def test_a_step_is_done_where_it_is_a_result():
    done = GlobalPlan(before="|", between=",", doing="={step}").done
    assert done("|45,43", "37+8=45-2=43") == 1
    assert done("|8,2", "37+8=45-2=43") == 0, "numbers of the problem are no results"


def test_plans_to_imitate_are_the_chains_results():
    task = ChainPlans(levels=(4,), size=10).build("train", 0)[0]
    assert task.messages[-1]["content"].endswith("=|")
    steps = task.columns["demonstration"].removeprefix("|").split(",")
    assert steps == [str(result) for result in task.columns["steps"][: len(steps)]]
    assert len(steps) < 4
