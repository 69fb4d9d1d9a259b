"""Random token trees with everything in them that a rollout may grow, and the plain reading of their trajectories."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task


class Written(NamedTuple):
    """One token of a trajectory, as whoever walks the nodes reads it; None where the policy did not write."""

    token: int
    origin: int
    behaviour_logprob: float | None
    version: int | None


def written(leaf: Node) -> list[Written]:
    """The oracle: a trajectory's tokens by walking its nodes, without any trie."""
    tokens = []
    for node in leaf.path():
        for i, token in enumerate(node.tokens):
            drawn = node.origin == Origin.POLICY
            logprob, version = (node.behaviour_logprob[i], node.version[i]) if drawn else (None, None)
            tokens.append(Written(token, int(node.origin), logprob, version))
    return tokens


def letters(tokens: Sequence[int]) -> str:
    """The text of these trees' tokens: a letter for each, none for token 0."""
    return "".join(chr(97 + token % 26) for token in tokens if token)


def random_tree(rng: Random, number: int = 0, *, vocabulary: int = 3, longest: int = 4, nodes: int = 12) -> Tree:
    """Up to two prompts, now and then an empty one; hints, tools, teachers, chat turns, empty runs, judged steps.

    Few different tokens, so that paths often coincide; log-probabilities that now and then differ for the same tokens;
    leaves without a grade or without an outcome.
    """

    def tokens(least: int = 0) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(rng.randint(least, longest))]

    roots = [Node(None, tokens(rng.choice((0, 1, 1, 1))), Origin.PROMPT) for _ in range(rng.choice((1, 1, 2)))]
    grown = list(roots)
    for _ in range(rng.randint(1, nodes)):
        above = rng.choice(grown)
        origin = rng.choice((Origin.POLICY,) * 5 + (Origin.HINT, Origin.TOOL, Origin.TEACHER, Origin.PROMPT))
        if origin == Origin.POLICY:
            run = tokens(rng.choice((0, 1)))
            logprob = [rng.choice((-0.5, -0.5, -0.5, -1.25)) for _ in run]
            version = [rng.choice((3, 3, 3, 4)) for _ in run]
            drawn = Continuation(run, logprob, logprob, version, rng.choice(("stop", "length")))
            grown.append(above.add_drawn(drawn, letters(run)))
        else:
            run = tokens()
            grown.append(above.add(run, origin, letters(run)))
    tree = Tree(Task(f"task-{number}", ()), roots)
    for node in grown:
        if rng.random() < 0.8 and node.path_tokens():
            below = [token if above in node.written else 0 for above in node.path()[1:] for token in above.tokens]
            last = rng.randint(1, max(1, len(below))) if rng.random() < 0.5 else 0  # token with which a step ends
            stop = len(letters(below[:last]))
            outcome = rng.choice((0.0, 1.0, 0.25, None))
            reason = "no verdict" if outcome is None else None
            steps = [JudgedStep(stop // 2, stop, rng.choice((0.5, -1.0)))] if last else []
            judged = tuple(step for step in steps if step.stop)
            node.grade = Grade(outcome, rng.choice((True, False, None)), judged, reason=reason)
    if rng.random() < 0.3 and tree.trajectories:
        new = rng.choice([node for node in grown if node.path_tokens()] or tree.trajectories)
        old = rng.choice(tree.trajectories)
        tree.chosen = [new if leaf is old else leaf for leaf in tree.trajectories]
    return tree


def random_trees(seed: int, *, most: int = 3, **limits: int) -> list[Tree]:
    rng = Random(seed)
    return [random_tree(rng, number, **limits) for number in range(rng.randint(1, most))]
