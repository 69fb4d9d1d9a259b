"""Metrics of one step's rollouts, as written to metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lyceum.core.forest import Forest
from lyceum.core.group import Group
from lyceum.core.roles import Roles
from lyceum.core.tree import LOGGED_METRICS, Node, Tree, solved
from lyceum.core.types import Credited, Grade, Origin, verdict_reader
from lyceum.utils.lazy_imports import torch
from lyceum.utils.numbers import level_order, mean


def rollout_metrics(trees: Sequence[Tree], forest: Forest, *, dropped: int = 0) -> dict[str, Any]:
    """Means over what was sampled.

    Args:
        trees: the step's, those that dynamic sampling dropped among them.
        dropped: how many these are.
    """
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    return {
        "reward/mean": _mean(outcome for tree in trees for _, _, outcome in tree.graded_with_outcome()),
        "correct/mean": mean_solved(trees),
        "groups/with_gradient": _mean(map(has_gradient, trees)),
        "groups": len(trees) - dropped,
        "groups_dropped": dropped,
        "completion_tokens/mean": _mean(leaf.episode_tokens for leaf in leaves),
        "truncated": _mean(leaf.finish == "length" for leaf in leaves),
        "ungraded": sum(leaf.grade is None or leaf.grade.outcome is None for leaf in leaves),
        "shared_tokens": forest.shared,
        "entropy": _entropy(forest),
        **_correct_by_level(trees),
        **_reward_parts(leaves),
        **_logged_by_rewards(leaves),
        **_rollout_counts(trees),
    }


def staleness(groups: Sequence[Group], forest: Forest, version: int) -> dict[str, float]:
    """By how many updates the weights that trained are newer than those that drew; nothing where all are the same.

    Over the distinct tokens that the policy drew in the groups that were sampled for the step.

    Args:
        groups: those that the forest is of.
        version: of the weights at the step's start.
    """
    sampled = torch.tensor([group.sampled for group in groups], dtype=torch.bool)
    drawn = sampled[forest.tree] & (forest.version != Forest.NO_VERSION)
    updates = version - forest.version[drawn]
    if not bool(updates.any()):
        return {}
    return {"staleness/mean": float(updates.double().mean()), "staleness/most": int(updates.max())}


def role_metrics(trees: Sequence[Tree], roles: Roles, step: int) -> dict[str, float]:
    """What each role earned and wrote in a step of the stage; nothing where there are no roles."""
    of_role: dict[str, list[tuple[Node, Grade, float]]] = {}
    for tree in trees:
        for graded in tree.graded_with_outcome():
            of_role.setdefault(graded[0].role, []).append(graded)
    of_role.pop("", None)
    metrics: dict[str, float] = {"role/swaps": roles.swaps(step)} if of_role else {}
    for role, graded in sorted(of_role.items()):
        metrics[f"role/{role}/trajectories"] = len(graded)
        metrics[f"role/{role}/reward"] = mean([outcome for _, _, outcome in graded])
        metrics[f"role/{role}/completion_tokens"] = mean([leaf.episode_tokens for leaf, _, _ in graded])
        if known := [grade.correct for _, grade, _ in graded if grade.correct is not None]:
            metrics[f"role/{role}/correct"] = mean(known)
    return metrics


def has_gradient(tree: Tree) -> bool:
    """Whether a group's outcomes differ, so that group-relative credit is not all 0."""
    return len({outcome for _, _, outcome in tree.graded_with_outcome()}) > 1


def mean_solved(trees: Sequence[Tree]) -> float | None:
    """Accuracy of the unguided answers, averaged over trees; None if no grader gives verdicts, or all were guided."""
    return _mean(share for _, share in _solved(trees))


def _solved(trees: Sequence[Tree]) -> list[tuple[Tree, float]]:
    """The trees whose unguided answers have an accuracy, with it."""
    read = verdict_reader(leaf.grade for tree in trees for leaf in tree.unaided)
    shares = ((tree, solved(tree.unaided, read)) for tree in trees)
    return [(tree, share) for tree, share in shares if share is not None]


def mean_abs_advantage(forest: Forest, credited: Credited | None, trees: int) -> list[float]:
    """Each tree's mean |advantage|: over the policy's tokens of each rollout, then over the tree's rollouts.

        m = mean_i mean_t |A_(i, t)|

    A long rollout counts no more than a short one, and one of several rows no more than one of a single row. Rollouts
    without policy tokens are left out; a tree with no others gets 0.

    Args:
        trees: how many trees the forest was made of; those without a graded trajectory have no rows in it.
    Source:
        The released codes of SEC (arXiv:2505.14970; auto_curriculum/priority.py) and DUMP (arXiv:2504.09710). DUMP's
        takes the absolute value of each rollout's mean, which differs only if its signs are mixed.
    """
    if credited is None:
        return [0.0] * trees
    mask = forest.trainable(forest.rows())
    last = forest.episode_rows
    tokens, tree = forest.over_episode(mask.sum(1))[last], forest.tree[forest.leaf][last]
    written = (tokens > 0).float()
    of_row = forest.over_episode((credited.advantage.abs() * mask).sum(1))[last] / tokens.clamp(min=1)
    rollouts = torch.zeros(trees).index_add(0, tree, written)
    total = torch.zeros(trees).index_add(0, tree, of_row)
    return (total / rollouts.clamp(min=1)).tolist()


def _mean(values: Iterable[float]) -> float | None:
    """The mean; None without values."""
    found = list(values)
    return mean(found) if found else None


def _correct_by_level(trees: Sequence[Tree]) -> dict[str, float]:
    """Accuracy by level of tasks that have one, unguided answers only."""
    of_level: dict[str, list[float]] = {}
    for tree, share in _solved(trees):
        if (level := tree.task.columns.get("level")) is not None:
            of_level.setdefault(str(level), []).append(share)
    return {f"level/{level}/correct": mean(of_level[level]) for level in sorted(of_level, key=level_order)}


def _reward_parts(leaves: Sequence[Node]) -> dict[str, float]:
    """Mean of each named reward part, over the trajectories that have it."""
    parts: dict[str, list[float]] = {}
    for leaf in leaves:
        for name, value in (leaf.grade.parts if leaf.grade else {}).items():
            parts.setdefault(name, []).append(value)
    return {f"reward/part/{name}": mean(values) for name, values in parts.items()}


def _logged_by_rewards(leaves: Sequence[Node]) -> dict[str, float]:
    """Mean of each metric that reward functions logged, over their calls."""
    logged: dict[str, list[float]] = {}
    for leaf in leaves:
        for name, values in leaf.stats.get(LOGGED_METRICS, {}).items():
            logged.setdefault(name, []).extend(values)
    return {f"reward/log/{name}": mean(values) for name, values in logged.items()}


def _rollout_counts(trees: Sequence[Tree]) -> dict[str, float]:
    """Mean per tree of each number in what the rollout noted on it: ``rollout/segments/fallbacks``."""
    counts: dict[str, list[float]] = {}
    for tree in trees:
        for name, note in tree.metadata.items():
            for count, value in note.items() if isinstance(note, dict) else ():
                if isinstance(value, int | float):
                    counts.setdefault(f"{name.partition('#')[0]}/{count}", []).append(value)
    return {f"rollout/{name}": mean(values) for name, values in counts.items()}


def _entropy(forest: Forest) -> float | None:
    """Entropy in nats per token: the mean -log p of the sampled tokens, an unbiased estimate at no cost."""
    rows = forest.rows()
    drawn = (rows.gather(forest.origin, fill=int(Origin.PROMPT)) == int(Origin.POLICY)) & forest.counted(rows)
    return -float(rows.gather(forest.behaviour_logprob)[drawn].mean()) if bool(drawn.any()) else None
