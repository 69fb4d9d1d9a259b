"""A run's cost so far, its grading failures, and whether its rewards had a learning signal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from lyceum.core.component import require_keys
from lyceum.core.tree import Tree, reasons_ungraded
from lyceum.evaluation.held_out import MAX_REASONS, why_ungraded

MAX_NOTHING_GRADED = 3
"""Consecutive steps without a graded trajectory after which a run stops: it would learn nothing."""
LEARNS_NOTHING = 5
"""Consecutive steps without a learning signal after which a run says so."""
UNJUDGED = "nothing says which answers are correct, by which collect.keep chooses groups"
"""What is said of groups whose rewards differ and that were dropped all the same."""
TO_LEARN = "a reward with more than one value"
"""What is needed where nothing says why no reward differs."""
MOST = 0.5
"""Share from which on something counts as the likely cause (no unit)."""


@dataclass
class Counts:
    """Counts over all sampling stages of a run."""

    tokens_sampled: int = 0
    tokens_trained: int = 0
    trajectories: int = 0
    truncated: int = 0
    """Trajectories truncated by a token limit."""
    ungraded: int = 0
    reasons_ungraded: dict[str, int] = field(default_factory=dict)
    """Reason -> number of ungraded trajectories; the run's first ``MAX_REASONS`` reasons."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reason -> the first row that it occurred on, with the traceback of a user's function."""
    skipped_steps: int = 0
    """Updates skipped because the loss or gradient was not finite."""
    nothing_graded: int = 0
    """Consecutive steps in which no trajectory could be graded."""
    lowest_reward: float | None = None
    """Lowest reward of all trajectories and judged steps; None before one was graded."""
    highest_reward: float | None = None
    since_signal: dict[str, int] = field(default_factory=dict)
    """What the steps since the last one with a signal say of why there is none (:func:`signs`), but for the first of
    them after one with a signal."""
    steps_with_signal: int = 0
    """Steps with a learning signal: rewards that differ, or texts to imitate."""
    steps_without_signal: int = 0
    """Consecutive steps without one, up to now."""

    def add(self, trees: Sequence[Tree]) -> None:
        """Count a step's trees."""
        leaves = [leaf for tree in trees for leaf in tree.trajectories]
        reasons = reasons_ungraded(trees)
        self.tokens_sampled += sum(tree.sampled_tokens for tree in trees)
        self.trajectories += len(leaves)
        self.truncated += sum(leaf.finish == "length" for leaf in leaves)
        self.ungraded += sum(reasons.values())
        for reason, times in reasons.items():
            if reason in self.reasons_ungraded or len(self.reasons_ungraded) < MAX_REASONS:
                self.reasons_ungraded[reason] = self.reasons_ungraded.get(reason, 0) + times
        graded_none = bool(leaves) and sum(reasons.values()) == len(leaves)
        self.nothing_graded = self.nothing_graded + 1 if graded_none else 0
        self._add_signs(signs(trees))
        for tree in trees:
            for _, grade, outcome in tree.graded_with_outcome():
                for reward in (outcome, *(step.reward for step in grade.steps)):
                    self.lowest_reward = min(reward, reward if self.lowest_reward is None else self.lowest_reward)
                    self.highest_reward = max(reward, reward if self.highest_reward is None else self.highest_reward)

    def add_unjudged(self, groups: int) -> None:
        """Count groups that were dropped for want of a verdict though their rewards differ; after :meth:`add`."""
        self._add_signs({"unjudged": groups})

    def add_given(self, groups: int) -> None:
        """Count groups of a file, which were not sampled."""
        self._add_signs({"given": groups})

    def _add_signs(self, more: Mapping[str, int]) -> None:
        if self.steps_without_signal or not self.steps_with_signal:  # not in steps of a run that learns
            self.since_signal |= {name: self.since_signal.get(name, 0) + n for name, n in more.items()}

    def add_signal(self, something: bool) -> None:
        """Count whether a step, whose trees were added, had a learning signal."""
        self.steps_with_signal += something
        if something:
            self.since_signal = {}
        self.steps_without_signal = 0 if something else self.steps_without_signal + 1

    @property
    def learnt(self) -> bool | None:
        """Whether rewards had any learning signal; None if no stage has sampled."""
        sampled = self.steps_with_signal or self.steps_without_signal
        return bool(self.steps_with_signal) if sampled else None

    @property
    def rewards(self) -> str:
        """The range of the rewards in words, such as ``every reward was 0``."""
        if self.lowest_reward is None or self.highest_reward is None:
            given = self.since_signal.get("given")
            return "no two completions of a prompt have different rewards" if given else "no reward was given"
        if self.lowest_reward == self.highest_reward:
            return f"every reward was {self.lowest_reward:g}"
        but = UNJUDGED if self.since_signal.get("unjudged") else "the same within each group"
        return f"rewards were {self.lowest_reward:g} to {self.highest_reward:g}, but {but}"

    @property
    def why_nothing_learnt(self) -> list[str]:
        """Lines that name the cause; empty if something was learnt."""
        if self.learnt is not False:
            return []
        ungraded = self.why_ungraded
        if self.lowest_reward is None and ungraded:
            return [f"nothing was learnt: {ungraded[0]}", *ungraded[1:]]
        return [f"nothing was learnt: {self.rewards}; needed: {needed(self.since_signal)}", *ungraded]

    @property
    def why_ungraded(self) -> list[str]:
        return why_ungraded(self.trajectories, self.ungraded, self.reasons_ungraded, self.failures)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("counts", given=state, needed=vars(self))
        vars(self).update({name: copy(state[name]) for name in vars(self)})


def to_grade(reasons: Mapping[str, int], failures: Mapping[str, str]) -> str:
    """What to try where nothing could be graded, by the most frequent reason.

    Args:
        failures: reason -> traceback, of those that a user's function raised.
    """
    most = max(reasons, key=lambda reason: reasons[reason], default="")
    if "no result within" in most or "timed out" in most:
        return "try: a larger reward.timeout_seconds, or fewer workers on a machine that is busy"
    if most.endswith(": KeyError: 'solution_str'"):  # def compute_score(**kwargs) tells nobody whose it is
        return "try: verl's parameters, reward={kind: verl, function: FILE.py:FUNCTION}"
    if most.startswith("environment '"):
        return "try: the environment's step by hand, on a turn's text"
    if most in failures:
        return "try: the function on a few rows, lyceum grade ROWS.jsonl --reward FILE.py:FUNCTION"
    return (
        "try: the reward on a few rows, lyceum grade ROWS.jsonl --reward KIND; lyceum components reward tells its needs"
    )


def signs(trees: Sequence[Tree]) -> dict[str, int]:
    """What says why the rewards of a step may all be the same.

    ``trajectories``, of which ``truncated``; with a verdict (``judged``), of which ``correct``; in which the verifier
    looked for an answer in some place (``searched``), of which ``unanswered``; ``groups`` of several, of which
    ``alike``: every trajectory has the same tokens.
    """
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    grades = [leaf.grade for leaf in leaves if leaf.grade is not None]
    groups = [tree.trajectories for tree in trees if len(tree.trajectories) > 1]
    return {
        "trajectories": len(leaves),
        "truncated": sum(leaf.finish == "length" for leaf in leaves),
        "judged": sum(grade.verdict is not None for grade in grades),
        "correct": sum(grade.verdict is True for grade in grades),
        "searched": sum(grade.answered is not None for grade in grades),
        "unanswered": sum(grade.answered is False for grade in grades),
        "groups": len(groups),
        "alike": sum(len({tuple(leaf.completion_tokens) for leaf in group}) == 1 for group in groups),
    }


def needed(signs: Mapping[str, int]) -> str:
    """What to try where no reward differs within a group: a remedy for each likely cause."""
    of = Counter(signs)
    if of["unjudged"]:
        return "a verdict per answer, reward.correct_at=VALUE (the reward from which it is correct), or " + (
            "groups chosen by their rewards, collect.keep=with-gradient"
        )
    if of["given"]:
        return (
            "such prompts, chosen and rejected among them; or a loss that compares nothing (lyceum train kto data=FILE)"
        )
    remedies: list[str] = []

    def most(some: str, of_all: str) -> str | None:
        """The share in words, where it is high."""
        return f"{100 * of[some] / of[of_all]:.0f} %" if of[of_all] and of[some] >= MOST * of[of_all] else None

    if share := most("truncated", "trajectories"):
        remedies.append(
            f"completions that end ({share} were truncated: a larger rollout.sampling.max_completion_tokens; in a "
            "dialogue, max_turns)"
        )
    if share := most("unanswered", "searched"):
        remedies.append(
            f"answers where the verifier looks for them ({share} of the completions have none there: the verifier's "
            "extract, or prompts that ask for its format)"
        )
    if share := most("alike", "groups"):
        remedies.append(f"samples that differ (in {share} of the groups all are the same: a higher temperature)")
    if of["judged"] and of["correct"] == of["judged"]:
        remedies.append("harder tasks (every answer was correct: tasks.levels, tasks.where, or others)")
    elif of["judged"] and not of["correct"]:
        remedies.append(
            "tasks that are solved sometimes (no answer was correct: look at some with lyceum view; easier tasks, "
            "guidance with hints, more rollout.samples)"
        )
    elif of["judged"]:
        remedies.append(
            "groups that are solved sometimes (easier or harder tasks, more rollout.samples, a higher "
            "rollout.sampling.temperature)"
        )
    return "; or ".join(remedies or [TO_LEARN])
