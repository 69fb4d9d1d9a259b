import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.tasks.chain import is_heldout, judge_steps, make_task
from lyceum.tasks.chain_demonstrations import ChainDemonstrations, write

CLEAN = {"slip": 0.0, "stop": 0.0, "corrected": 0.0}


def draw(count=2000, split="train", **changes):
    source = ChainDemonstrations(size=count, **changes).build(split, 0)
    return [source[i] for i in range(count)]


def answer(task):
    return task.columns["demonstration"].partition("#")[2]


def test_a_writer_who_never_errs_writes_the_solution():
    assert write(random.Random(0), 37, [8, -2, 5], **CLEAN) == "37+8=45-2=43+5=48#48"


def test_a_slip_adds_ten_and_the_chain_goes_on_from_it():
    # 45+10 = 55; 55-2 = 53, slipped 63; 63+5 = 68, slipped 78
    assert write(random.Random(0), 37, [8, -2, 5], **{**CLEAN, "slip": 1.0}) == "37+8=55-2=63+5=78#78"


def test_a_corrected_slip_goes_on_from_the_right_result():
    written = write(random.Random(0), 37, [8, -2], slip=1.0, stop=0.0, corrected=1.0)
    assert written == "37+8=55!45-2=53!43#43"


def test_stopping_early_leaves_the_last_operation_out():
    assert write(random.Random(0), 37, [8, -2, 5], **{**CLEAN, "stop": 1.0}) == "37+8=45-2=43#43"


def test_given_results_are_never_slipped():
    assert write(random.Random(0), 37, [8, -2, 5], **{**CLEAN, "slip": 1.0}, given=2) == "37+8=45-2=43+5=58#58"


@given(
    st.integers(0, 99),
    st.lists(st.integers(-9, 9).filter(bool), min_size=2, max_size=9),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_no_error_gives_the_right_answer_by_chance(start, operations, stops, seed):
    # If slips could cancel, a wrong way would be rewarded and RL would have less to climb.
    task = make_task("t", start, operations)
    written = write(random.Random(seed), start, operations, slip=0.4, stop=float(stops), corrected=0.0)
    erred = written != task.columns["demonstration"]
    assert erred == (written.partition("#")[2] != task.answer)


def test_shares_are_what_the_settings_say():
    tasks = draw(retry_share=0.25, hint_share=(0.5,) * 8, tier_share=(0, 0, 1))
    levels = Counter(task.columns["level"] for task in tasks)
    # 18 % of 2000 at level 1: 360, standard deviation 17; 7 % at level 8: 140, standard deviation 11
    assert 280 < levels[1] < 440
    assert 90 < levels[8] < 190
    # level 1 has no retries; of the other 1640 a quarter, 410, standard deviation 18
    assert 320 < sum(len(task.messages) == 3 for task in tasks) < 500
    hints = Counter(task.hint.tier for task in tasks if task.hint is not None)
    # half of the 1590 that are left
    assert set(hints) == {"solution"}
    assert 690 < hints["solution"] < 900


def test_a_hint_stands_in_the_prompt():
    for task in draw(100, hint_share=(1.0,) * 8, retry_share=0.0):
        assert task.messages[0]["content"].endswith(task.hint.text + "=")


def test_hints_take_errors_away_and_more_the_more_they_say():
    def wrong(tier_share):
        tasks = draw(600, level_share=(0,) * 7 + (1,), hint_share=(1.0,) * 8, tier_share=tier_share, retry_share=0.0)
        return sum(answer(task) != task.answer for task in tasks) / len(tasks)

    knowledge, planning, solution = wrong((1, 0, 0)), wrong((0, 1, 0)), wrong((0, 0, 1))
    assert knowledge > planning + 0.05 > solution + 0.1


def test_what_follows_a_critique_is_right_and_what_it_follows_is_wrong():
    tasks = [task for task in draw(600, retry_share=1.0) if task.columns["level"] > 1]
    named = 0
    for task in tasks:
        attempt, critique = task.messages[1]["content"], task.messages[2]["content"]
        assert attempt.partition("#")[2] != task.answer
        assert answer(task) == task.answer
        first_wrong = 1 + [good for _, good in judge_steps(task, attempt)].index(0.0)
        assert critique in ("!=", f"!{first_wrong}=")
        assert first_wrong <= task.columns["level"]
        named += critique != "!="
    assert 0.4 < named / len(tasks) < 0.6


def test_demonstrations_keep_the_splits_of_the_chains():
    for split in ("train", "heldout"):
        for task in draw(200, split=split, hint_share=(0.0,) * 8):
            assert is_heldout(task.messages[0]["content"]) == (split == "heldout")


@given(st.integers(0, 999), st.integers(0, 1000))
def test_a_demonstration_follows_from_seed_and_index_alone(index, seed):
    random.seed(index)  # the shared stream must not matter
    first = ChainDemonstrations(size=1000).build("train", seed)[index]
    assert ChainDemonstrations(size=1000).build("train", seed)[index] == first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slip": (0.0, 0.1)}, "slip: got 2 levels; allowed: 8"),
        ({"stop": (0.0,) * 7 + (1.5,)}, "stop: got .* allowed: probabilities"),
        ({"stop": (0.5,) + (0.0,) * 7}, "level 1"),
        # ten slips of ten come round to the right answer
        ({"level_share": (1.0,) * 10}, "allowed: 1 to 9"),
    ],
)
def test_noise_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        ChainDemonstrations(**changes)
