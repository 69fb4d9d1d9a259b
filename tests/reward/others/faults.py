"""Functions that return what is no reward."""

import math


def short(completions, **kwargs):
    return [1.0]


def scalar(completions, **kwargs):
    return 0.5


def mapping(completions, **kwargs):
    return {"score": 1.0}


def nothing(completions, **kwargs):
    pass


def texts(completions, **kwargs):
    return ["1"] * len(completions)


def nones(completions, **kwargs):
    return [None] * len(completions)


def nans(completions, **kwargs):
    return [math.nan] * len(completions)


def verl_nan(solution_str, ground_truth):
    return math.nan


def verl_pair(solution_str, ground_truth):
    return 1.0, "right"


def verl_other_key(solution_str, ground_truth):
    return {"reward": 1.0}


def verl_short(solution_strs, ground_truths):
    return [1.0]


def own_list(completion):
    return [1.0]


def raises(completions, answer, **kwargs):
    return [float(text) for text in answer]


def both_wrong(completions, **kwargs):
    return [completion["content"]["text"] for completion in completions]


def first_character(completions, **kwargs):
    return [float(completion[0] == "7") for completion in completions]


def get_number(scale: float):
    return 2.0 * scale


def get_needs(max_len: int):
    return get_needs
