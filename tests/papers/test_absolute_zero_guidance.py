import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Grade
from lyceum.papers.absolute_zero.guidance_proposer_solver import ProposerSolver, earned_by
from lyceum.tasks.chain import Chain
from lyceum.tasks.countdown import Countdown
from lyceum.utils.errors import RecipeError


class Proposed(Source):
    """The proposer's samples are ``s0``, ``s1``, ...: those of ``tasks`` are tasks of that name."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def proposed(self, text, like):
        assert like.id == "Q"
        return ask(text) if text in self.names else "format"


def guided(context, *names, samples=4, **settings):
    guide = ProposerSolver(proposals=2, **settings).build(Proposed(*names), seed=0)
    tree = roll(guide(flat(samples)), context, ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def of(tree, role):
    return [leaf for leaf in tree.chosen if leaf.role == role]


@pytest.mark.parametrize(
    ("accuracy", "learnability", "difficulty"),
    [(0.0, 0.0, 1.0), (0.25, 0.75, 0.75), (0.75, 0.25, 0.25), (1.0, 0.0, 0.0)],
)
def test_what_a_proposal_earns(accuracy, learnability, difficulty):
    assert earned_by(accuracy, "learnability") == learnability
    assert earned_by(accuracy, "difficulty") == difficulty


def test_diversity_is_the_variance_of_the_outcomes_over_the_largest():
    # Of a 0/1 outcome with mean 1/4 the variance is 3/16, at most 1/4.
    assert earned_by(0.25, "diversity") == 0.75
    assert [earned_by(m, "diversity") for m in (0.0, 0.5, 1.0)] == [0, 1, 0]


def test_a_proposal_is_solved_and_earns_what_the_solver_missed():
    # The solver answers s0 once in four: the proposal earns 3/4; s1 is no task.
    context = FakeContext({"s0": [RIGHT, WRONG, WRONG, WRONG]})
    tree, metrics = guided(context, "s0")
    assert context.asked == [("unlike Q", 2), ("s0", 4)]
    assert [leaf.grade.outcome for leaf in of(tree, "proposer")] == [0.75, -1.0]
    assert [leaf.grade.correct for leaf in of(tree, "proposer")] == [True, False]
    assert [leaf.grade.outcome for leaf in of(tree, "solver")] == [1.0, 0.0, 0.0, 0.0]
    assert metrics == {
        "proposals/all": 2,
        "proposals/solved_between": 1,
        "proposals/distinct_in_group": 1,
        "proposals/rejected": 1,
        "rejected/format": 1,
    }


def test_answers_to_different_proposals_are_marked_apart():
    tree, _ = guided(FakeContext(), "s0", "s1")
    assert [leaf.root.key for leaf in of(tree, "solver")] == ["s0"] * 4 + ["s1"] * 4
    assert tree.unaided == []  # nobody answered the drawn task itself: curricula read no accuracy of it


def test_a_proposal_whose_answers_cannot_be_graded_earns_nothing_and_is_not_trained():
    tree, _ = guided(FakeContext({"s0": [Grade.ungraded("broken")]}), "s0")
    assert of(tree, "proposer")[0].grade.reason == "no answer to the proposed task was graded"


def test_without_budget_nothing_is_solved():
    context = FakeContext(budget=2)
    tree, _ = guided(context, "s0", "s1")
    assert context.asked == [("unlike Q", 2)]
    assert [leaf.grade.outcome for leaf in tree.chosen] == [None, None]


def test_tasks_without_a_rule_for_proposals_are_refused():
    ProposerSolver().check_tasks(Chain().build("train", 0))
    with pytest.raises(RecipeError, match="no rule that reads a proposal"):
        ProposerSolver().check_tasks(Countdown().build("train", 0))
