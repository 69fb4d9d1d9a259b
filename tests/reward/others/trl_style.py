"""Reward functions with TRL's signatures."""

import asyncio
import re


def boxed(completions, solution, log_extra=None, **kwargs):
    """Messages, and a column ``solution``, as ``trl.rewards.accuracy_reward`` reads."""
    texts = [completion[0]["content"] for completion in completions]
    if log_extra is not None:
        log_extra("said", texts)
    right = [gold.rpartition("#### ")[2] for gold in solution]
    return [float(f"\\boxed{{{gold}}}" in text) for text, gold in zip(texts, right, strict=True)]


def thinks(completions: list[list[dict[str, str]]], **kwargs) -> list[float]:
    return [float(bool(re.match(r"^<think>.*</think>", each[0]["content"], re.DOTALL))) for each in completions]


def texts(completions, prompts=None, **kwargs):
    return [float(completion.endswith("72")) for completion in completions]


def column(prompts, completions, answer, **kwargs):
    return [float(text[-2:] == gold[-2:]) for text, gold in zip(completions, answer, strict=True)]


async def waits(completions, **kwargs):
    await asyncio.sleep(0)
    return [1.0 if "72" in completion[0]["content"] else None for completion in completions]


def logs(completions, trainer_state, log_metric, **kwargs):
    log_metric("step", trainer_state.global_step)
    return [float(len(completion)) for completion in completions]


class _Overlong:
    """Read by tokens alone, and an object, as TRL's newest factories return."""

    __name__ = "overlong"

    def __init__(self, most):
        self.most = most

    def __call__(self, completion_ids, **kwargs):
        return [-float(len(ids) > self.most) for ids in completion_ids]


def get_overlong(max_completion_len: int, soft_punish_cache: int = 0):
    if max_completion_len < 1:
        raise ValueError("max_completion_len should be positive")
    return _Overlong(max_completion_len - soft_punish_cache)


def reasoning(completions, solution, reasoning_delimiters=None, **kwargs):
    """An optional setting beside the columns, as ``trl.rewards.reasoning_accuracy_reward`` has."""
    marks = reasoning_delimiters or ["</think>"]
    return [float(any(mark in completion[0]["content"] for mark in marks)) for completion in completions]
