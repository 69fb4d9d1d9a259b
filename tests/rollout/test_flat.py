import pytest
from fake_task import FakeTask, roll

from lyceum.core.types import Continuation, Grade, Origin, Sampling, Task
from lyceum.rollout.flat import Flat


class Context(FakeTask):
    """Notes what is asked of it; grades by number of the sample."""

    def __init__(self, budget_left=1 << 62):
        self.asked = []
        self.budget_left = budget_left

    async def extend(self, node, n, sampling=None, *, keep=False):
        self.asked.append((node, n, sampling))
        return [node.add_drawn(Continuation([10 + i], [-1.0], [-1.0], [0], "stop")) for i in range(n)]

    def judged(self, leaf):
        return Grade(float(leaf.tokens[0] - 10))


def test_a_flat_group_is_one_extension_of_its_start_left_to_be_graded_as_a_set():
    context, sampling = Context(), Sampling(temperature=0.5)
    tree = roll(Flat(samples=3, sampling=sampling).build(), context)
    assert context.asked == [(tree.root, 3, sampling)]
    assert [leaf.tokens for leaf in tree.trajectories] == [[10], [11], [12]]
    assert [leaf.grade.outcome for leaf in tree.graded] == [0, 1, 2]
    assert context.held == 0, "nothing follows by the grades"


@pytest.mark.parametrize(("budget", "longest"), [(40, 8), (20, 6), (2, 1), (0, 1)])
def test_the_samples_of_a_group_share_the_tasks_budget(budget, longest):
    # 40 // 3 is more than the 8 asked for; 20 // 3 = 6, where each one's own 8 would take 24 of 20; a group that has
    # begun has a token each.
    context = Context(budget)
    roll(Flat(samples=3, sampling=Sampling(max_completion_tokens=8)).build(), context)
    assert [(n, sampling.max_completion_tokens) for _, n, sampling in context.asked] == [(3, longest)]


def test_what_the_policy_wrote_before_the_start_counts_and_what_was_given_does_not():
    context = Context()
    flat = Flat(samples=3, sampling=Sampling(max_completion_tokens=8)).build()

    async def goes_on(context, start, n):
        given = start.add([1, 2, 3], Origin.PREFIX)
        (written,) = await context.extend(given, 1)
        return await flat(context, written, n)

    roll(goes_on, context, Task("t", ()), 2)
    assert [(n, sampling.max_completion_tokens) for _, n, sampling in context.asked[1:]] == [(2, 7)]


def test_no_samples_is_refused():
    with pytest.raises(ValueError, match="samples"):
        Flat(samples=0)
