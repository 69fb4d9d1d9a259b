"""Next steps from every state, on small trees without a model."""

from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.steps import Steps
from lyceum.core.types import Sampling
from lyceum.papers.direct_advantage.rollout_next_steps import NextSteps


class Valuing(FakeTreeContext):
    """A path is worth a tenth of its letters ``a``; an answer has three letters, right with ``b`` first."""

    def __init__(self, **more):
        super().__init__(lambda text: text.startswith("b"), **more)
        self.valued = []

    async def value(self, paths):
        self.valued += [path.completion for path in paths]
        return [path.completion.count("a") / 10 for path in paths]

    @property
    def budget_left(self):
        return self.left(self.budget - self.tree.sampled_tokens)


def search(context, **settings):
    limit = Sampling(max_completion_tokens=12)
    settings = {"trajectories": 1, "width": 2, "step": Steps(tokens=1), "sampling": limit} | settings
    return roll(NextSteps(**settings).build(), context)


def leaves(tree):
    return [(leaf.completion, leaf.grade.outcome, leaf.grade.verdict) for leaf in tree.trajectories]


def test_one_of_the_next_steps_goes_on_and_the_others_end_with_their_value():
    tree = search(context := Valuing())
    # From each state "a" and "b" are drawn; "a" goes on. After three letters both draws end the sequence.
    assert leaves(tree) == [
        ("aaa", 0.0, False),
        ("aaa", 0.0, False),
        ("b", 1e-6, None),
        ("ab", 0.1, None),
        ("aab", 0.2, None),
    ]
    assert sorted(context.valued) == sorted(["", "a", "aa", "aaa", "b", "ab", "aab"])  # each state once, and no answer
    assert context.graded == ["aaa", "aaa"]  # the verifier sees answers alone
    assert tree.root.value == 0.0
    assert tree.solved == 0.0


def test_or_each_of_them_is_completed_once_and_verified():
    tree = search(context := Valuing(), others="finish")
    assert [leaf.completion for leaf in tree.trajectories] == ["aaa", "aaa", "baa", "aba", "aab"]
    assert [leaf.grade.verdict for leaf in tree.trajectories] == [False, False, True, False, False]
    assert context.valued == []
    # Where it was cut a state is a node, whose mean outcome is its success rate: five completions pass the prompt.
    assert [len(list(child.walk())) for child in tree.root.children] == [9, 2]


def test_a_budget_ends_the_trajectory_where_it_is_spent():
    tree = search(Valuing(budget=5))
    # Two steps of two draws; one token is left for the last.
    assert tree.sampled_tokens <= 5
    assert all(leaf.finish is not None and leaf.grade is not None for leaf in tree.trajectories)
    tree = search(Valuing(budget=5), others="finish")
    assert tree.sampled_tokens <= 5
    assert all(leaf.finish is not None for leaf in tree.trajectories)


def test_trajectories_and_their_number():
    assert len(leaves(search(Valuing(), trajectories=2, width=1))) == 2
    assert NextSteps().sized(7).trajectories == 7
