import asyncio
import signal
import threading
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import plain_model, policy_like

from lyceum.core.component import kinds
from lyceum.core.settings import RewardSettings
from lyceum.core.steps import cut_off
from lyceum.core.types import Grade, Origin, Sampling, Task
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.reward.base import combine, each
from lyceum.runtime.in_process import InProcess
from lyceum.utils.aio import gather, run_async
from lyceum.utils.interrupts import Interrupts
from lyceum.utils.seeds import counter_seed

POLICY = policy_like(plain_model())
POLICY.stop_ids = frozenset()  # every sample is as long as it may be
SIX = Sampling(max_completion_tokens=6)
TASKS = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("1+1=", "2+34=", "5=", "9-1="))]


async def all_right(task, leaves, context):
    return [Grade(1.0, True) for _ in leaves]


def runtime(grader=all_right, engine=None, **config):
    return InProcess(POLICY, engine or EmbeddedEngine(POLICY), grader, seed=3, **config)


def flat(samples, sampling=SIX):
    async def roll(context, start, n):
        return await context.extend(start, samples, sampling)

    return roll


def drawn(trees):
    return [[(n.tokens, n.behaviour_logprob) for n in tree.nodes() if n.origin == Origin.POLICY] for tree in trees]


def test_rollouts_of_all_tasks_share_the_engines_batches():
    run = runtime()
    trees = run_async(run.run(TASKS, flat(3), key=0))
    assert [tree.task.id for tree in trees] == ["t0", "t1", "t2", "t3"]
    assert run.engine.occupancy.steps == 6, "as many as one sample is long, not as all are together"
    assert [tree.sampled_tokens for tree in trees] == [18] * 4
    assert [len(tree.graded) for tree in trees] == [3] * 4


def test_a_tree_is_the_same_alone_and_among_others():
    among = run_async(runtime().run(TASKS, flat(3), key=0))
    for place, task in enumerate(TASKS):
        alone = run_async(runtime().run([task], flat(3), key=0))[-1]
        assert [n.tokens for n in alone.trajectories] == [n.tokens for n in among[place].trajectories]


def test_tasks_steps_and_samples_draw_different_numbers():
    def seeds(key, tasks=TASKS):
        seen = []

        async def roll(context, start, n):
            seen.extend(context.seed("sample", request, i) for request in range(3) for i in range(4))
            return []

        run_async(runtime().run(tasks, roll, key=key))
        return seen

    everything = seeds((0, 0)) + seeds((0, 1)) + seeds((1, 0)) + seeds("evaluate")
    assert len(set(everything)) == len(everything) == 4 * 4 * 12
    assert seeds((0, 0)) == everything[: 4 * 12], "and the same whenever they are asked for"
    assert seeds((0, 0), TASKS[:1] * 2)[:12] != seeds((0, 0), TASKS[:1] * 2)[12:], "one task twice in a step"


def test_a_counter_seed_is_the_same_in_every_process():
    # blake2b of "7/task/0", the first 63 bits: a change here would change what every recipe gives.
    assert counter_seed(7, "task", 0) == counter_seed(7, "task", 0) == int.from_bytes(
        __import__("hashlib").blake2b(b"7/task/0", digest_size=8).digest(), "big"
    ) // 2  # fmt: skip
    assert all(0 <= counter_seed(i) < 2**63 for i in range(1000))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, min_size=2))
def test_different_keys_give_different_seeds(keys):
    assert len({counter_seed(0, *key) for key in keys}) == len(keys)


# Graders -----------------------------------------------------------------------------------------------------------


def test_a_grader_that_raises_is_recorded_and_the_others_grade_on():
    def score(task, leaf):
        if task.id == "t1":
            raise KeyError("answer")
        return Grade(1.0, True)

    class Part(RewardSettings):
        kind: str = "fragile"

        def build(self, source):
            return each(score)

    trees = run_async(runtime(combine([Part()], None)).run(TASKS, flat(2), key=0))
    assert [len(tree.graded) for tree in trees] == [2, 0, 2, 2]
    assert trees[1].trajectories[0].grade.reason == "fragile: KeyError: 'answer'"


def test_a_grader_that_hangs_is_recorded(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text("import time\ndef score(hangs=False):\n    time.sleep(60 if hangs else 0)\n    return 1.0\n")
    part = kinds("reward")["function"](function=f"{file}:score", timeout_seconds=1.0)
    tasks = [
        Task("quick", TASKS[0].messages, columns={"hangs": False}),
        Task("slow", TASKS[1].messages, columns={"hangs": True}),
    ]
    from lyceum.reward.base import allow_code

    with allow_code():
        grader = combine([part], tasks)
    quick, slow = run_async(runtime(grader).run(tasks, flat(1), key=0))
    assert [leaf.grade.outcome for leaf in quick.trajectories] == [1.0]
    assert slow.trajectories[0].grade.outcome is None
    assert "second" in slow.trajectories[0].grade.reason


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_engine_waits_for_grades_by_which_a_rollout_goes_on_and_for_no_others(goes_on):
    engine = EmbeddedEngine(POLICY)
    passed = []

    async def slow(task, leaves, context):
        if task.id == "t0":
            before = engine.occupancy.steps
            await asyncio.sleep(0.3)  # of which a step takes a few milliseconds
            passed.append(engine.occupancy.steps - before)
        return [Grade(1.0) for _ in leaves]

    async def roll(context, start, n):
        length = 2 if context.task.id == "t0" else 40
        leaves = await context.extend(start, 1, Sampling(max_completion_tokens=length))
        if goes_on:
            await context.grade(leaves)
        return leaves

    run = runtime(slow, engine)
    # Another runtime over the same engine, as an evaluation between two steps makes one, takes nothing away.
    run_async(runtime(all_right, engine).run(TASKS[:1], flat(1), key="evaluate"))
    run_async(run.run(TASKS[:2], roll, key=0))
    assert (passed == [0]) if goes_on else (passed[0] > 0)


def test_what_a_rollout_returns_is_graded_once_and_together():
    asked = []

    async def grader(task, leaves, context):
        asked.append(len(leaves))
        return [Grade(float(len(asked))) for _ in leaves]

    async def roll(context, start, n):
        first = await context.extend(start, 2, SIX)
        assert [grade.outcome for grade in await context.grade(first)] == [1, 1]
        assert [grade.outcome for grade in await context.grade(first)] == [1, 1], "they keep their grades"
        more = await context.extend(start, 3, SIX)
        return [*first, *more, more[0]]

    (tree,) = run_async(runtime(grader).run(TASKS[:1], roll, key=0))
    assert asked == [2, 3]
    assert [leaf.grade.outcome for leaf in tree.trajectories] == [1, 1, 2, 2, 2, 2]


def test_a_grader_may_ask_the_runs_own_engine_while_the_rollout_goes_on_by_its_grades():
    engine = EmbeddedEngine(POLICY)

    async def asks(task, leaves, context):
        # Several questions at once, and one after the other: the engine that waits for the grades answers them.
        at_once = await asyncio.gather(
            *(context.ask(leaf.path_tokens(), 1, SIX, key=(i,)) for i, leaf in enumerate(leaves))
        )
        scored = await context.score([*leaves[0].path_tokens(), *at_once[0][0].tokens])
        return [Grade(float(len(scored))) for _ in leaves]

    async def roll(context, start, n):
        leaves = await context.extend(start, 2, SIX)
        (grade, _) = await context.grade(leaves)
        assert grade.outcome == len(start.tokens) + 12
        return [*leaves, *await context.extend(leaves[0], 1, SIX)]

    trees = run_async(runtime(asks, engine).run(TASKS, roll, key=0))
    assert [tree.sampled_tokens for tree in trees] == [12 + 12 + 6 + 6] * 4, "what graders ask is paid for"
    assert [len(list(tree.nodes())) for tree in trees] == [4] * 4, "and no part of the tree"
    again = run_async(runtime(asks).run(TASKS, roll, key=0))
    assert drawn(again) == drawn(trees)


def test_another_event_loop_is_refused():
    with pytest.raises(RuntimeError, match="run_async"):
        asyncio.run(runtime().run(TASKS, flat(1), key=0))


async def search(context, start, n):
    """Three rounds below a prompt; in each, every node is extended and graded in a coroutine of its own."""
    frontier = [start]

    async def grow(node):
        children = await context.extend(node, 2, SIX, keep=True)
        await context.grade(children)
        return children

    for _ in range(3):
        grown = await asyncio.gather(*(grow(node) for node in frontier))
        frontier = [max(children, key=lambda n: n.grade.outcome) for children in grown] + grown[0][:1]
    return frontier


def test_a_draw_depends_on_the_node_and_its_number_there_and_not_on_the_order_of_requests():
    def rolled(order):
        async def roll(context, start, n):
            first = await context.extend(start, 2, SIX)
            for place in order:
                await context.extend(first[place], 2, SIX)
            return await context.extend(start, 1, SIX)

        return drawn(run_async(runtime().run(TASKS, roll, key=0)))

    assert rolled((0, 1)) == rolled((1, 0))


def test_tasks_draw_the_same_in_another_order_and_a_task_that_comes_twice_draws_anew():
    def rolled(tasks):
        trees = run_async(runtime().run(tasks, flat(2), key=0))
        return {tree.task.id: [leaf.tokens for leaf in tree.trajectories] for tree in trees}

    assert rolled(TASKS) == rolled(TASKS[::-1])
    once, again = drawn(run_async(runtime().run(TASKS[:1] * 2, flat(2), key=0)))
    assert [tokens for tokens, _ in once] != [tokens for tokens, _ in again]


def test_what_is_drawn_below_a_cut_is_drawn_anew():
    async def roll(context, start, n):
        (leaf,) = await context.extend(start, 1, SIX)
        head = cut_off(leaf, 3)
        return [leaf, *await context.extend(head, 2, Sampling(max_completion_tokens=3))]

    (tree,) = run_async(runtime().run(TASKS[:1], roll, key=0))
    seeds = {node.address for node in tree.nodes()}
    assert len(seeds) == len(list(tree.nodes()))


def test_batches_form_in_the_same_order_however_long_graders_take():
    def searched(delays):
        engine, batches = EmbeddedEngine(POLICY, EmbeddedConfig(max_sequences=6)), []
        step = engine._step

        def noted():
            slots = engine._slots
            members = [int((slots.member_slot == a).sum()) for a in range(len(slots))]
            batches.append([(job.request.order, tuple(slots.drawn(a)), members[a]) for a, job in enumerate(slots.job)])
            step()

        engine._step = noted
        rng = Random(delays)

        async def grader(task, leaves, context):
            if delays is not None:
                await asyncio.sleep(rng.choice((0, 0, 0.001, 0.004)))
            return [Grade(float(sum(leaf.tokens) % 7)) for leaf in leaves]

        trees = run_async(runtime(grader, engine).run(TASKS, search, key=0))
        return batches, drawn(trees)

    batches, trees = searched(None)
    assert len(batches) > 20
    for delays in range(6):
        assert searched(delays) == (batches, trees)  # to the last bit of every log-probability


async def guided(context, start, n):
    """What a guide does: a rollout, and, where it failed, others under longer prompts."""
    leaves = await flat(2, Sampling(max_completion_tokens=3 + int(context.task.id[1])))(context, start, n)
    await context.grade(leaves)
    for hint in ("1", "22", "333")[: 1 + sum(leaves[0].tokens) % 3]:
        messages = [{"role": "user", "content": hint + context.task.messages[0]["content"]}]
        longer = context.tree.add_prompt(context.render(messages))
        leaves += await flat(2)(context, longer, n)
        await context.grade(leaves)
    return leaves


def test_a_guided_task_comes_back_at_the_same_step_however_long_its_verifier_takes():
    def rolled(delays):
        engine, arrived = EmbeddedEngine(POLICY, EmbeddedConfig(max_sequences=6)), []
        extend = engine.extend

        async def noted(request):
            arrived.append((engine.occupancy.steps, request.order))
            return await extend(request)

        engine.extend = noted
        rng = Random(delays)

        async def grader(task, leaves, context):
            if delays is not None:
                await asyncio.sleep(rng.choice((0, 0, 0.001, 0.004)))
            return [Grade(0.0)] * len(leaves)

        trees = run_async(runtime(grader, engine).run(TASKS, guided, key=0))
        return sorted(arrived), engine.occupancy, drawn(trees)

    at_once = rolled(None)
    assert len(at_once[0]) > 8
    for delays in range(6):
        assert rolled(delays) == at_once  # to the last bit of every log-probability


# Failures, limits --------------------------------------------------------------------------------------------------


def test_the_first_failure_cancels_the_rest():
    went_on = []

    async def fails():
        await asyncio.sleep(0)
        raise RuntimeError("no disk")

    async def waits():
        try:
            await asyncio.sleep(60)
        finally:
            went_on.append("cancelled")
        went_on.append("went on")

    with pytest.raises(RuntimeError, match="no disk"):
        run_async(gather([waits(), fails(), waits()]))
    assert went_on == ["cancelled", "cancelled"]
    assert run_async(gather([asyncio.sleep(0, i) for i in (2, 1)])) == [2, 1]


def test_a_rollout_that_fails_frees_the_engine_for_the_next_run():
    run = runtime()

    async def roll(context, start, n):
        leaves = await context.extend(start, 1, Sampling(max_completion_tokens=2 if context.task.id == "t0" else 50))
        if context.task.id == "t0":
            raise RuntimeError("a bug in a rollout")
        return leaves

    async def twice():
        with pytest.raises(RuntimeError, match="a bug in a rollout"):
            await run.run(TASKS, roll, key=0)
        return await run.run(TASKS, flat(2), key=1)

    assert drawn(run_async(twice())) == drawn(run_async(runtime().run(TASKS, flat(2), key=1)))


def test_the_tokens_left_to_a_task_count_all_its_rollouts_and_a_share_is_part_of_them():
    left = []

    async def roll(context, start, n):
        left.append(context.budget_left)
        hinted = context.tree.add_prompt(context.render(TASKS[1].messages))
        for node in (start, hinted):
            await context.extend(node, 2, SIX)
            left.append(context.budget_left)
        shared = context.share(100)
        assert (shared.budget_left, context.share(4).budget_left) == (left[-1], 4)
        leaves = await shared.extend(start, 1, SIX)
        left.append(context.budget_left)
        assert context.tree.sampled_tokens == 30
        return leaves

    run_async(runtime(max_tokens_per_task=36).run(TASKS[:1], roll, key=0))
    assert left == [36, 24, 12, 6]


def test_the_engine_is_told_how_much_of_a_path_is_completion_where_a_stop_string_may_begin_in_it():
    asked, engine = [], EmbeddedEngine(POLICY)
    extend = engine.extend
    engine.extend = lambda request: (asked.append((len(request.prefix), request.written)), extend(request))[1]

    async def roll(context, start, n):
        stopping = Sampling(max_completion_tokens=3, stop=("no such text",))
        (first,) = await context.extend(start, 1, stopping, keep=True)
        (second,) = await context.extend(first, 1, stopping, keep=True)
        return await context.extend(second, 1, Sampling(max_completion_tokens=3))

    (tree,) = run_async(runtime(engine=engine).run(TASKS[:1], roll, key=0))
    prompt = len(tree.root.tokens)
    assert asked == [(prompt, 0), (prompt + 3, 3), (prompt + 6, 0)], "without stop strings nobody looks"


def test_each_finished_tree_is_told_of():
    told = []
    trees = run_async(runtime().run(TASKS, flat(1), key=0, done=told.append))
    assert sorted(t.task.id for t in told) == [t.task.id for t in trees]


def test_a_run_can_be_started_where_a_loop_runs_already():
    async def answer():
        return 42

    async def notebook():
        return run_async(answer())

    assert run_async(answer()) == asyncio.run(notebook()) == 42


def test_where_a_loop_runs_already_the_second_ctrl_c_cancels_what_waits_in_the_thread():
    ended = []
    main = threading.main_thread().ident
    assert main is not None

    async def waits(interrupts):
        for first in (True, False):
            signal.pthread_kill(main, signal.SIGINT)
            while first and not interrupts.interrupted():
                await asyncio.sleep(0.01)
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    async def notebook():
        with Interrupts() as interrupts:
            run_async(waits(interrupts))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    assert ended == [True]


def test_tasks_that_ask_what_paths_are_worth_at_once_share_one_call_of_the_value_model():
    calls = []

    class Lengths:
        def __call__(self, paths):
            calls.append(len(paths))
            return [float(len(path.completion_tokens)) for path in paths]

    async def roll(context, start, n):
        number = int(context.task.id[1:])
        children = await context.extend(start, 2, Sampling(max_completion_tokens=3 + number))
        # Each gets its own back, in its order: a slice that is off by one task shows here.
        values = await context.value([start, *children])
        assert values == [0.0, *(len(child.tokens) for child in children)]
        leaves = await context.extend(children[0], 1, SIX, keep=True)
        assert await context.value(leaves) == [float(9 + number)]
        return leaves

    tasks = [Task(f"t{i}", TASKS[0].messages) for i in (0, 1, 1, 0)]
    run_async(runtime(value=Lengths()).run(tasks, roll, key="k"))
    # The engine waits for values that are asked for: those that ended together stay together to the end.
    assert calls == [6, 6, 2, 2]


def test_asking_what_a_path_is_worth_without_a_value_model_says_so():
    async def roll(context, start, n):
        return await context.value([start])

    with pytest.raises(RuntimeError, match="no value model"):
        run_async(runtime().run(TASKS, roll, key="k"))
