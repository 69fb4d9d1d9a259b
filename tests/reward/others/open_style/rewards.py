"""Reward functions with open-r1's signatures, in a file of a package."""

import math

from .tags import contents


def tag_count(completions, **kwargs) -> list[float]:
    return [sum(0.5 for tag in ("<think>", "</think>") if text.count(tag) == 1) for text in contents(completions)]


def get_cosine_scaled(min_value_wrong: float = -1.0, max_value_correct: float = 1.0, max_len: int = 1000):
    def cosine_scaled(completions, solution, **kwargs):
        texts = contents(completions)
        found = [gold.rpartition("#### ")[2] in text for text, gold in zip(texts, solution, strict=True)]
        size = [max_value_correct if right else min_value_wrong for right in found]
        return [s * 0.5 * (1 + math.cos(math.pi * len(t) / max_len)) for s, t in zip(size, texts, strict=True)]

    return cosine_scaled


def get_code_format(language: str = "python"):
    def code_format(completions, **kwargs):
        return [float(f"```{language}" in text) for text in contents(completions)]

    return code_format
