"""What reward models learn from graded trees: verdicts, judged steps, estimates from the tree, progress, pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal

from pydantic import Field

from lyceum.core.component import Settings
from lyceum.core.spans import Decode, TokenEnds, earned_at, token_span
from lyceum.core.steps import Steps, step_ends
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, JudgedStep
from lyceum.value.targets import examples_of

PathOf = Callable[[Node], list[int]]
Labels = Literal["outcome", "steps", "mean-outcome", "process", "progress", "pairs"]


class Factor(Settings):
    """Something by which two trajectories of a task are compared."""

    by: str = "correct"
    """``correct`` (the verdict), ``outcome`` (the reward), ``tokens`` (of the completion), or the name of a reward part
    as it is logged after ``reward/part/``."""
    margin: float = Field(default=0.0, ge=0)
    """By more than this they must differ, in the factor's own unit; otherwise the next factor decides."""
    higher: bool = True
    """Whether more of it is better."""

    def of(self, leaf: Node) -> float | None:
        """The factor of a graded trajectory; None where its grade does not have it."""
        grade = leaf.grade
        if grade is None or grade.outcome is None:
            return None
        match self.by:
            case "correct":
                return None if grade.verdict is None else float(grade.verdict)
            case "outcome":
                return grade.outcome
            case "tokens":
                return float(len(leaf.completion_tokens))
            case _:
                return grade.parts.get(self.by)


def preferred(a: Sequence[float | None], b: Sequence[float | None], factors: Sequence[Factor]) -> tuple[int, int]:
    """Which of two trajectories is better, by the first factor that they differ in by more than its margin.

    Args:
        a, b: each factor of the two, in the order of their importance; None decides nothing.
    Returns:
        1, -1, or 0 where no factor decides; and the place of the factor that decided, -1 for none.
    Source:
        HERON, arXiv:2309.02632 (the decision tree of ranked feedback signals).
    """
    for place, (one, other, factor) in enumerate(zip(a, b, factors, strict=True)):
        if one is not None and other is not None and abs(one - other) > factor.margin:
            return (1 if (one > other) == factor.higher else -1), place
    return 0, -1


def pairs_of(
    tree: Tree, factors: Sequence[Factor], most: int, path: PathOf = Node.path_tokens
) -> tuple[list[Example], list[int]]:
    """The tree's pairs, the better path before the worse one, and the place of the factor that decided each.

    Args:
        most: pairs that are taken, spread over all that there are.
        path: what the model is shown of a trajectory, which begins with the prompt.
    """
    leaves = [leaf for leaf in tree.graded if leaf.root is tree.root]
    factored = [[factor.of(leaf) for factor in factors] for leaf in leaves]
    paths = [path(leaf) for leaf in leaves]
    found: list[tuple[Node, Node, int]] = []
    for i, j in combinations(range(len(leaves)), 2):
        side, place = preferred(factored[i], factored[j], factors)
        if side and paths[i] != paths[j]:
            found.append((leaves[i], leaves[j], place) if side > 0 else (leaves[j], leaves[i], place))
    chosen = [found[k * len(found) // most] for k in range(most)] if len(found) > most else found
    examples = [whole(leaf, path=path) for better, worse, _ in chosen for leaf in (better, worse)]
    return examples, [place for *_, place in chosen]


def whole(leaf: Node, value: float = 0.0, ends: Sequence[int] = (), path: PathOf = Node.path_tokens) -> Example:
    return Example(path(leaf), value, len(leaf.root.tokens), ends)


def outcome_of(leaf: Node) -> float:
    """1 or 0 by the verdict; without one the outcome, clipped to 0 .. 1."""
    assert leaf.grade is not None
    assert leaf.grade.outcome is not None
    verdict = leaf.grade.verdict
    return min(1.0, max(0.0, leaf.grade.outcome)) if verdict is None else float(verdict)


def judged_ends(leaf: Node, steps: Sequence[JudgedStep], ends: TokenEnds) -> list[int]:
    """End of each judged step, in tokens of the path."""
    of_text, prompt = ends.of(leaf), len(leaf.root.tokens)
    return [prompt + earned_at(of_text, token_span(of_text, *step[:2]), step.stop) for step in steps]


def examples_for(
    tree: Tree, labels: Labels, decode: Decode, step: Steps, path: PathOf = Node.path_tokens
) -> list[Example]:
    """A tree's paths with their values, by every label but ``pairs``; each path once, in the order of the tree.

    Args:
        step: where steps end, for ``progress``.
        path: what the model is shown of a trajectory, for ``outcome``; as of :func:`pairs_of`.
    """
    if labels in ("mean-outcome", "process"):
        return examples_of(tree, labels)
    leaves = [leaf for leaf in tree.graded if leaf.root is tree.root]
    found: dict[tuple[int, ...], Example] = {}
    ends = TokenEnds(decode)
    for leaf in leaves:
        tokens, prompt = leaf.path_tokens(), len(leaf.root.tokens)
        if labels == "outcome":
            made = [whole(leaf, outcome_of(leaf), path=path)]
        elif labels == "progress":
            made = [whole(leaf, outcome_of(leaf), cut(leaf, step, decode))]
        else:
            assert leaf.grade is not None
            places = judged_ends(leaf, leaf.grade.steps, ends)
            made = [
                Example(tokens[:end], min(1.0, max(0.0, one.reward)), prompt)
                for end, one in zip(places, leaf.grade.steps, strict=True)
            ]
        for example in made:
            found.setdefault(tuple(example.tokens), example)
    return list(found.values())


def cut(leaf: Node, step: Steps, decode: Decode) -> list[int]:
    """Ends of a trajectory's steps, in tokens of its path."""
    prompt = len(leaf.root.tokens)
    return [prompt + end for end in step_ends(leaf.path_tokens()[prompt:], (), step, decode)]
