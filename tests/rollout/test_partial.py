"""Partial rollouts: what a step does not finish goes on in the next one, under the newer weights."""

from tiny_models import plain_model, policy_like

from lyceum.core.group import Group
from lyceum.core.types import Grade, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.rollout.flat import Flat
from lyceum.run.trees import dump_groups, load_groups
from lyceum.runtime.in_process import InProcess
from lyceum.training.stages.online import Online
from lyceum.utils.aio import run_async

POLICY = policy_like(plain_model())
POLICY.stop_ids = frozenset()  # every sample is as long as it may be
TASKS = [Task("t0", ({"role": "user", "content": "1+1="},))]
SETTINGS = Flat(samples=2, tokens_per_step=4, sampling=Sampling(max_completion_tokens=10))


def kept_apart(trees):
    return [group.tree for group in load_groups(dump_groups([Group(tree, finished=False) for tree in trees]))]


def steps(number, settings=SETTINGS):
    """The tree after so many steps, each under newer weights, kept as a checkpoint keeps it, and what was graded."""
    engine, graded, trees = EmbeddedEngine(POLICY), [], []

    async def grader(task, leaves, context):
        graded.append([len(leaf.completion_tokens) for leaf in leaves])
        return [Grade(1.0) for _ in leaves]

    for step in range(number):
        engine.version = step
        runtime = InProcess(POLICY, engine, grader, seed=3)
        tasks, under_way = (TASKS, ()) if step == 0 else ([], kept_apart(trees))
        trees = run_async(runtime.run(tasks, settings.build(), key=step, under_way=under_way))
    return trees[0], graded


def test_a_completion_goes_on_where_it_was_cut_and_its_tokens_keep_their_versions():
    tree, graded = steps(2)
    assert [leaf.finish for leaf in tree.chosen] == [None, None]
    assert tree.unfinished == tree.chosen
    assert graded == [], "an unfinished completion has no grade"
    tree, graded = steps(3)
    assert [leaf.finish for leaf in tree.chosen] == ["length", "length"]
    assert graded == [[10, 10]], "the whole group at once"
    for leaf in tree.chosen:
        assert [version for node in leaf.path()[1:] for version in node.version] == [0] * 4 + [1] * 4 + [2] * 2
        assert leaf.policy_tokens == 10


def test_a_group_waits_for_its_longest_completion():
    tree, _ = steps(1)
    tree.chosen[0].finish = "stop"
    runtime = InProcess(POLICY, EmbeddedEngine(POLICY), None, seed=3)  # nothing is graded
    (tree,) = run_async(runtime.run([], SETTINGS.build(), key=1, under_way=[tree]))
    assert [len(leaf.completion_tokens) for leaf in tree.chosen] == [4, 8]
    assert len(tree.unfinished) == 1


def test_a_limit_that_is_not_met_changes_nothing():
    longer = SETTINGS.model_copy(update={"tokens_per_step": 10})
    whole = SETTINGS.model_copy(update={"tokens_per_step": None})
    assert [leaf.tokens for leaf in steps(1, longer)[0].chosen] == [leaf.tokens for leaf in steps(1, whole)[0].chosen]


def test_guides_are_refused():
    stage = Online(rollout=SETTINGS, guidance=[{"kind": "search-where-hard"}])
    assert "rollout.tokens_per_step: got 4 with guidance 'search-where-hard'" in "\n".join(
        stage.conflicts(stage.composition())
    )
