"""Ariadne's reward of a walk: what is right of it from the start on, and more the more turns that has."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.papers.ariadne.tasks_mazes import moves_in, turns_of
from lyceum.reward.base import each
from lyceum.utils.errors import RecipeError


class MazeSteps(RewardSettings):
    """First moves that are the path's, weighted by their turns; the whole path counts twice.

        2 n (turns + 1) of all n moves right,  else k (turns of the first k + 1):  k moves are right from the start on

    Its part ``walked`` is k / n of the path, ``beyond`` how many moves the answer has beyond the path's number.

    Source:
        Ariadne, arXiv:2511.00710, and the authors' src/plugin.py (github.com/MingheShen/Ariadne).
    """

    kind: Literal["maze-steps"] = "maze-steps"

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if "moves" not in source[0].columns:
            raise RecipeError(f"reward.kind: got {self.kind!r}, and the tasks have no moves; allowed: tasks 'mazes'")

    def build(self, source: TaskSource) -> Grader:
        return each(self.grade)

    def grade(self, task: Task, leaf: Node) -> Grade:
        moves, path = moves_in(leaf.completion), str(task.columns["moves"])
        right = len(shared(moves, path))
        parts = {"walked": right / len(path), "beyond": float(len(moves) - len(path))}
        return Grade(walk_reward(moves, path), parts=parts)


def walk_reward(moves: str, path: str) -> float:
    """The reward of an answer's moves, given the path's."""
    if moves == path:
        return 2.0 * len(path) * (turns_of(path) + 1)
    prefix = shared(moves, path)
    return float(len(prefix) * (turns_of(prefix) + 1))


def shared(moves: str, path: str) -> str:
    """The path's first moves that an answer has, too."""
    count = next((i for i, (move, right) in enumerate(zip(moves, path, strict=False)) if move != right), None)
    return path[: min(len(moves), len(path)) if count is None else count]
