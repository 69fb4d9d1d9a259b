"""SPELL's rewards of the three roles.

Source: SPELL, arXiv:2509.23863, section 3.2; Tongyi-Zhiwen/Qwen-Doc, SPELL/verl/verl/trainer/ppo: core_algos.py
(``questioner_mapping_function``) and ray_spell_trainer.py (``_self_verification``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp

FORMAT, UNGROUNDED = -1.0, -0.5
"""What a questioner earns for a text that is no question, and for a question that is answered without documents."""
WIDTH = 0.5 / 3
"""Standard deviation of the questioner's reward around an accuracy of one half."""


def questioner_reward(accuracy: float) -> float:
    """What a question earns by the mean reward of its answers: most where half of them are accepted.

        exp(-(m - 1/2)^2 / (2 (1/6)^2)) for 0 < m < 1, else 0

    Args:
        accuracy: m, from 0 to 1.
    """
    return exp(-((accuracy - 0.5) ** 2) / (2 * WIDTH**2)) if 0 < accuracy < 1 else 0.0


def majority(votes: Sequence[bool | None]) -> bool | None:
    """What most votes say; None where most cannot be read, or there is none. Ties go to the vote that came first."""
    return Counter(votes).most_common(1)[0][0] if votes else None


def agreement(votes: Sequence[bool | None]) -> float:
    """Share of the votes that can be read which say what most say, 0 to 1; 0 where most cannot be read."""
    said, read = majority(votes), [vote for vote in votes if vote is not None]
    return 0.0 if said is None else sum(vote == said for vote in read) / len(read)


def answer_reward(rule: bool, votes: Sequence[bool | None]) -> float:
    """What an answer earns: 1 where the rule accepts it or most votes do, else 0."""
    return float(rule or majority(votes) is True)


def vote_rewards(votes: Sequence[bool | None]) -> list[float]:
    """What each vote earns: 1 with the majority, 0 against it, -1 where it cannot be read."""
    said = majority(votes)
    return [-1.0 if vote is None else float(vote == said) for vote in votes]


def teaches(rule: bool, votes: Sequence[bool | None], low: float, high: float) -> bool:
    """Whether votes are trained on: most say what the rule says, and some but not too many disagree.

    Args:
        low, high: bounds of their agreement, 0 to 1, both allowed.
    """
    return majority(votes) is rule and low <= agreement(votes) <= high
