from dataclasses import replace

import pytest
from fake_task import NO_MODEL, FakeTask, roll

from lyceum.core.forest import build_forest
from lyceum.core.types import Continuation, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.guidance.demonstrations import Demonstrations
from lyceum.tasks.chain import Chain, grade_leaves, make_task
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

TASK = make_task("t", 37, [8])  # 37+8=45#45
RIGHT, WRONG = "37+8=45#45", "37+8=55#55"
END = 1


class Context(FakeTask):
    """Characters are tokens; the verifier is the chain's own."""

    def __init__(self, limit=1000):
        self.limit = limit

    def begin(self, task):
        super().begin(task, [7, 8])

    def tokens_left(self, node):
        return self.limit - len(node.path_tokens())

    def encode(self, text):
        return [ord(c) for c in text] + [END]

    def judged(self, leaf):
        return run_async(grade_leaves(TASK, [leaf], NO_MODEL))[0]


def guided(*texts, task=TASK, limit=1000, **settings):
    """The tree of rollouts that wrote these texts, guided, and what the guide says of it."""

    async def rollout(context, start, n):
        for text in texts:
            tokens = context.encode(text)
            logprobs = [-0.5] * len(tokens)
            start.add_drawn(Continuation(tokens, logprobs, logprobs, [0] * len(tokens), "stop"), text)
        return list(start.children)

    guide = Demonstrations(**settings).build(Chain().build("train", 0), seed=0)
    tree = roll(guide(rollout), Context(limit), task)
    guide.observe([tree])
    return tree, guide.metrics()


def texts(tree):
    return [leaf.text for leaf in tree.trajectories]


def test_the_demonstration_is_a_row_of_the_group_that_a_teacher_wrote_and_moves_its_baseline():
    tree, metrics = guided(WRONG, WRONG, WRONG)
    assert texts(tree) == [WRONG, WRONG, WRONG, RIGHT]
    forest = build_forest([tree], decode=lambda tokens: "".join(chr(token) for token in tokens if token != END))
    credited = GroupRelative(scale="none").build()(forest)
    rows = forest.rows()
    # Mean 1/4: the demonstration gets 3/4 on each of its 11 tokens, the others -1/4. Were it left out, all would be 0.
    teacher = rows.gather(forest.origin) == int(Origin.TEACHER)
    assert teacher.sum(1).tolist() == [0, 0, 0, 11]
    assert credited.advantage[teacher].tolist() == [0.75] * 11
    assert credited.advantage[0, 2:13].tolist() == [-0.25] * 11
    left_out = dict.fromkeys(("left_out/missing", "left_out/too_long", "left_out/wrong", "left_out/ungraded"), 0)
    assert metrics == {"groups/guided": 1, "correct/own": 0} | left_out


def test_always_or_only_where_every_rollout_fails():
    assert texts(guided(RIGHT, WRONG)[0]) == [RIGHT, WRONG, RIGHT]
    assert texts(guided(RIGHT, WRONG, when="failed")[0]) == [RIGHT, WRONG]
    assert texts(guided(WRONG, WRONG, when="failed")[0]) == [WRONG, WRONG, RIGHT]


def test_instead_of_rollouts_the_wrong_ones_go_first():
    assert texts(guided(RIGHT, WRONG, WRONG, place="instead")[0]) == [RIGHT, WRONG, RIGHT]
    tree, _ = guided(RIGHT, WRONG, place="instead", copies=2)
    assert len(tree.trajectories) == 2
    assert all(leaf.origin == Origin.TEACHER for leaf in tree.trajectories)


def test_the_policys_own_accuracy_is_told_without_the_demonstration():
    # Catches a share of 2/3: the demonstration is right and would count.
    assert guided(RIGHT, WRONG)[1]["correct/own"] == 0.5


@pytest.mark.parametrize(
    ("task", "settings", "why"),
    [
        (replace(TASK, columns={**TASK.columns, "demonstration": WRONG}), {}, "wrong"),
        (replace(TASK, columns={**TASK.columns, "demonstration": None}), {}, "missing"),
        (TASK, {"max_completion_tokens": 10}, "too_long"),
    ],
)
def test_a_demonstration_that_cannot_be_used_is_left_out_and_counted(task, settings, why):
    tree, metrics = guided(WRONG, WRONG, task=task, **settings)
    assert texts(tree) == [WRONG, WRONG]
    assert metrics[f"left_out/{why}"] == 1
    assert metrics["groups/guided"] == 0


def test_the_end_of_sequence_belongs_to_what_is_learnt():
    tree, _ = guided(WRONG, max_completion_tokens=11)
    assert tree.trajectories[-1].tokens[-1] == END


def test_tasks_without_demonstrations_are_refused_before_a_model_loads():
    with pytest.raises(RecipeError, match="no column 'demonstration', which guidance 'demonstrations'"):
        Demonstrations().check_tasks([Task("t", ())])


def test_a_demonstration_for_which_the_context_has_no_room_is_left_out():
    # A prompt of 2 tokens, 10 of the demonstration and its end: 13 hold it, 12 do not.
    assert guided(WRONG, limit=13)[1]["groups/guided"] == 1
    _, metrics = guided(WRONG, limit=12)
    assert (metrics["groups/guided"], metrics["left_out/too_long"]) == (0, 1)
