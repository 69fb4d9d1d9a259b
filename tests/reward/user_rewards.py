"""Reward functions as users write them; tests name this file in recipes."""

import asyncio
import math
import re
import sys
import time
from decimal import Decimal
from fractions import Fraction

calls = 0


def odd(completion):
    return {
        "big": 10**400,
        "fraction": Fraction(10**5000, 3),
        "decimal": Decimal("1.5"),
        "inf": math.inf,
        "complex": 1 + 2j,
        "part": {"reward": 1.0, "extra": math.nan},
        "bigpart": {"reward": 1.0, "extra": 10**400},
        "huge": 1e15,
    }[completion]


def trl_nan(completions, log_metric, log_extra, **kwargs):
    log_metric("x", math.nan)
    log_extra("y", [math.inf] * len(completions))
    return [float(len(completion) % 2) for completion in completions]


def length(completion):
    return len(completion)


def near(answer, completion, level=0, *, columns):
    if completion == "abstain":
        return None
    return {"reward": 1.0 - abs(int(completion) - int(answer)) / 10, "correct": completion == answer, "level": level}


def right(task, completion, **rest):
    assert {"prompt", "messages", "finish", "completion_ids", "columns", "id", "level"} <= set(rest)
    return task.answer == completion and task.columns["level"] == 3


def counts(completion):
    global calls
    calls += 1
    return calls


def needs(completion, levle):
    return 0.0


def text(completion):
    return "1.0"


def hangs(completion):
    while completion == "hang":
        pass
    time.sleep(600 if completion == "sleep" else 0)
    return 1.0


async def later(completion, answer):
    await asyncio.sleep(60 if completion == "sleep" else 0.01)
    return float(completion == answer)


def leaves_the_program(completion):
    return sys.exit(0) if completion == "exit" else 1.0


async def ends_more_than_its_call(completion):
    if completion == "exit":
        sys.exit(0)
    if completion == "cancel":
        raise asyncio.CancelledError
    if completion == "timeout":
        raise TimeoutError("the service did not answer")
    return 1.0


# As in TRL's documentation, in substance: a plain reward, a conversational one, one that abstains, one that logs.
def trl_length(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


def trl_boxed(completions, ground_truth, **kwargs):
    found = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
    return [1.0 if match and match.group(1) == truth else 0.0 for match, truth in zip(found, ground_truth, strict=True)]


def trl_chat(prompts, completions, **kwargs):
    assert all(prompt[-1]["role"] == "user" for prompt in prompts)
    return [float(completion[0]["content"] == "yes") for completion in completions]


def trl_math_only(prompts, completions, task, **kwargs):
    return [1.0 if kind == "math" else None for kind in task]


def trl_code_only(prompts, completions, task, **kwargs):
    return [-1.0 if kind == "code" else None for kind in task]


async def trl_async(prompts, completions, **kwargs):
    await asyncio.sleep(0.01)
    return [1.0 if completion else 0.0 for completion in completions]


async def trl_async_chat(prompts, completions, solution, **kwargs):
    await asyncio.sleep(0.01)
    assert [prompt[-1]["role"] for prompt in prompts] == ["user"] * len(solution)
    return [float(completion[0]["content"] == right) for completion, right in zip(completions, solution, strict=True)]


def trl_logs(prompts, completions, trainer_state, log_extra=None, log_metric=None, **kwargs):
    log_extra("first", [completion[:1] for completion in completions])
    log_metric("progress", trainer_state.global_step / trainer_state.max_steps)
    return [0.5] * len(completions)


def trl_short(prompts, completions, **kwargs):
    return [1.0]


# As verl calls them.
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert extra_info["num_turns"] is None
    return {"score": float(solution_str == ground_truth), "acc": solution_str == ground_truth, "pred": solution_str}


def verl_plain(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    return bonus + (data_source == "gsm8k") + extra_info["index"]


def verl_more(solution_str, ground_truth, penalty):
    return float(solution_str == ground_truth) - penalty


def fails(completion):
    return {}["x"]


async def fails_later(completion):
    return fails(completion)


def trl_fails(completions, **kwargs):
    return [fails(completion) for completion in completions]


def verl_fails(data_source, solution_str, ground_truth, extra_info):
    return fails(solution_str)


CHAIN = {"level", "start", "operations", "steps", "hints", "demonstration", "rubric"}
"""The columns of a chain."""


def function_counts_strangers(task, columns, **kwargs):
    documented = {"completion", "prompt", "messages", "answer", "completion_ids", "finish", "id"}
    messages = [task.samples, task.hint]
    strangers = len(set(kwargs) ^ (CHAIN | documented)) + len(set(columns) ^ CHAIN)
    return strangers + 2 - messages.count(None) + len(task.notes)


def trl_counts_strangers(prompts, completions, **kwargs):
    documented = {"answer", "completion_ids", "trainer_state", "log_extra", "log_metric"}
    return [len(set(kwargs) ^ (CHAIN | documented))] * len(prompts)
