import asyncio
import datetime
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.component import explain
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Origin, Task, TaskSource
from lyceum.reward.pool import WorkerError, WorkerPool
from lyceum.tasks import reasoning_gym
from lyceum.tasks._reasoning_gym_worker import worker
from lyceum.tasks.reasoning_gym import ReasoningGym, level_in_ranges, process
from lyceum.utils.errors import RecipeError

SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}


def sums(**settings) -> ReasoningGym:
    return ReasoningGym(dataset="chain_sum", config=SUMS, **settings)


def ask(source: TaskSource, task: Task, *texts: str) -> list[Grade]:
    prompt = Node(None, [1], Origin.PROMPT)
    leaves = [Node(prompt, [2], Origin.POLICY, finish="stop", text=text) for text in texts]

    async def grade():
        return await source.grader()(task, leaves, NO_MODEL)

    return asyncio.run(grade())


def test_the_datasets_own_verifier_grades_the_answer_in_its_tags():
    source = sums().build("train", 0)
    task = source[3]
    # Its verifier takes "+07.0" for 7; comparing texts would not.
    right, padded, wrong, none = ask(
        source,
        task,
        f"so <answer>{task.answer}</answer>",
        f"<answer>{float(task.answer):+.1f}</answer>",
        "<answer>99999</answer>",
        task.answer,
    )
    assert (right.outcome, right.correct) == (1.0, True)
    assert padded.outcome == 1.0
    assert wrong.correct is False
    assert none.correct is False


def test_a_task_follows_from_seed_split_and_index_alone():
    settings = sums()
    forwards = [settings.build("heldout", 1)[index] for index in range(10)]
    source = settings.build("heldout", 1)
    assert [source[index] for index in reversed(range(10))] == forwards[::-1]
    # reasoning-gym draws entry i from seed + i: with neighbouring seeds the runs would see each other's tasks.
    questions = [task.messages[-1]["content"] for task in forwards]
    others = [settings.build("heldout", 0)[index].messages[-1]["content"] for index in range(1, 11)]
    assert sum(a == b for a, b in zip(questions, others, strict=True)) < 3


def test_train_and_heldout_share_no_question():
    def questions(split, seed):
        source = sums().build(split, seed)
        return {source[index].messages[-1]["content"] for index in range(300)}

    train, heldout = questions("train", 0) | questions("train", 1), questions("heldout", 2)
    assert len(heldout) > 50
    assert not train & heldout


def test_the_level_is_an_entry_of_the_metadata():
    task = sums(level="num_terms").build("train", 0)[0]
    assert task.columns["level"] == task.columns["metadata"]["num_terms"] in (2, 3)
    with pytest.raises(RecipeError, match=r"tasks.level: got 'num_term' \(did you mean 'num_terms'\?\)"):
        sums(level="num_term").build("train", 0)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"dataset": "chain_sums"}, "dataset: got 'chain_sums' (did you mean 'chain_sum'?); allowed: "),
        (
            {"dataset": "chain_sum", "config": {"min_term": 2}},
            "config.min_term: unknown key (did you mean 'min_terms'?) of 'chain_sum'; allowed: min_terms",
        ),
        ({"dataset": "chain_sum", "config": {"seed": 2}}, "config.seed: unknown key"),
        (
            {"dataset": "time_intervals", "config": {"min_date": datetime.date(2020, 1, 1)}},
            "config.min_date: got datetime.date(2020, 1, 1); allowed: text, numbers, true, false, null, and lists",
        ),
    ],
)
def test_a_wrong_name_is_named_with_its_nearest(settings, line):
    with pytest.raises(ValidationError) as error:
        ReasoningGym.model_validate(settings)
    assert explain(error.value, ReasoningGym)[0].startswith(line)


def test_settings_that_the_dataset_refuses_are_named():
    with pytest.raises(RecipeError, match=r"reasoning-gym refuses .* max_terms must be >= min_terms"):
        ReasoningGym(dataset="chain_sum", config={"min_terms": 5, "max_terms": 2}).build("train", 0)


def test_an_entry_that_cannot_be_made_is_named():
    # Some datasets raise at settings only when an entry is drawn.
    source = sums().build("train", 0)
    with pytest.raises(RecipeError, match=r"refuses .* for 'chain_sum', at entry nowhere: TypeError"):
        source._entry(0, "nowhere")  # pyright: ignore[reportArgumentType]


def test_a_process_that_died_between_two_jobs_is_replaced_and_makes_the_same_task():
    def end():
        [pid] = process().pids
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    source = sums().build("train", 0)
    task = source[3]
    end()
    assert source[3] == task
    end()
    [grade] = ask(source, task, f"<answer>{task.answer}</answer>")
    assert grade.correct


def hangs(at: str):
    """The factory of a process that never ends what it should ``do``; the pool finds it by this file's name."""
    work = worker()
    return lambda job: time.sleep(600) if job["do"] == at else work(job)


def test_an_entry_that_takes_too_long_is_named_and_a_check_has_a_limit_of_its_own(monkeypatch):
    def hanging(at: str, seconds: float):
        pool = WorkerPool("test_reasoning_gym:hangs", {"at": at}, workers=1, timeout_seconds=seconds)
        monkeypatch.setattr(reasoning_gym, "process", lambda: pool)

    source = sums(timeout_seconds=0.1).build("train", 0)
    hanging("score", 100)
    task = source[3]
    [grade] = ask(source, task, f"<answer>{task.answer}</answer>")
    assert grade.reason == "no result within 0.1 seconds; its process was ended"
    hanging("entry", 0.1)
    with pytest.raises(WorkerError, match=r"tasks: entry 3 of reasoning-gym's 'chain_sum' was not made: no result"):
        source[3]


def test_the_runs_own_process_never_imports_reasoning_gym():
    program = (
        "import sys; from lyceum.tasks.reasoning_gym import ReasoningGym;"
        "print(ReasoningGym(dataset='gcd').build('train', 0)[0].answer); sys.exit('reasoning_gym' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_answer_that_the_verifier_cannot_read_is_wrong():
    # This one reads whole numbers and raises at anything else. Ungraded, what a model writes at first would teach it
    # nothing.
    source = ReasoningGym(dataset="prime_factorization").build("train", 0)
    right, word = ask(source, source[0], f"<answer>{source[0].answer}</answer>", "<answer>none</answer>")
    assert (right.outcome, right.correct) == (1.0, True)
    assert (word.outcome, word.correct) == (0.0, False)


def test_a_verifier_that_finds_everything_right_is_refused():
    with pytest.raises(ValidationError) as error:
        ReasoningGym(dataset="game_of_life_halting")
    assert explain(error.value, ReasoningGym) == [
        "dataset: got 'game_of_life_halting', whose verifier in reasoning-gym finds any answer right; allowed: "
        "another dataset"
    ]


def test_a_verifier_that_raises_is_ungraded():
    source = sums().build("train", 0)
    task = replace(source[0], columns={**source[0].columns, "entry": [0, "nowhere"]})
    [grade] = ask(source, task, "<answer>1</answer>")
    assert grade.outcome is None
    assert (grade.reason or "").startswith("TypeError")


def test_the_level_is_where_the_entry_s_figures_stand_in_their_ranges():
    # 5 of 2 to 6 terms is 3/4 of the way, 4 of 1 to 4 digits all of it: 7/8 on average, the fifth fifth
    ranges = {"num_terms": [2, 6], "num_digits": [1, 4]}
    assert level_in_ranges({"num_terms": 5, "num_digits": 4, "difficulty": ranges}) == 5
    assert level_in_ranges({"num_terms": 2, "num_digits": 1, "difficulty": ranges}) == 1
    assert level_in_ranges({"num_terms": 4, "difficulty": ranges}) == 3
    assert level_in_ranges({"num_terms": 2, "difficulty": {"num_terms": [2, 2]}}) == 1
    assert level_in_ranges({"difficulty": {"depth": 3}}) is None
    assert level_in_ranges({"difficulty": "hard"}) is None
