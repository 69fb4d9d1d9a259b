"""Reward functions with verl's signatures."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return float(solution_str.endswith(f"#### {ground_truth}"))


def of_gsm8k(solution_str, ground_truth, method="strict", format_score=0.0, score=1.0):
    """As verl's own module for GSM8K: two of the four, and settings."""
    right = solution_str.endswith(f"#### {ground_truth}" if method == "strict" else ground_truth)
    return score if right else format_score if "####" in solution_str else 0


async def judged(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(ground_truth in solution_str), "acc": ground_truth in solution_str, "pred": solution_str}


def by_source(data_source, solution_str, ground_truth, extra_info=None):
    return {"openai/gsm8k": 1.0}[data_source]


def of_search(solution_str, ground_truth, method="strict", format_score=0.0, score=1.0):
    """As verl's own for search: its ground truth is an object."""
    return score if solution_str in ground_truth["target"] else format_score


def batched(data_sources, solution_strs, ground_truths, extra_infos, bonus=0.0):
    """As verl's reward manager ``batch`` calls."""
    return [{"score": bonus + (gold in text)} for text, gold in zip(solution_strs, ground_truths, strict=True)]


def named_otherwise(model_output: str, ground_truth: str, timeout_score: float = 0) -> bool:
    return ground_truth in model_output
