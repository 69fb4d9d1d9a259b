"""The token tree while it grows: Python objects, one tree for each task's whole experience.

Finished trees are flattened into a :class:`lyceum.core.forest.Forest`, which is what credit and learner see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from lyceum.core.notes import AnyNote, Note, typed
from lyceum.core.types import (
    ASSISTANT,
    Choices,
    Continuation,
    Grade,
    Origin,
    Task,
    TopTokens,
    no_choices,
    verdict_reader,
)
from lyceum.utils.seeds import counter_seed


class UnknownTokens(list[int]):
    """The tokens of a text that came without them: at most their number is known.

    Asking for what is not known raises ValueError: a reward that reads tokens must not see a completion of none.
    """

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self.number = number

    def __len__(self) -> int:
        if self.number is None:
            raise ValueError("the reward counts tokens, and only the completion's text is known")
        return self.number

    def __iter__(self) -> Iterator[int]:
        raise ValueError("the reward reads tokens, and only the completion's text is known")


@dataclass(eq=False)
class Node:
    """A run of tokens with one origin.

    Attributes:
        parent: the node above; None for a prompt.
        tokens: token ids of this run alone.
        behaviour_logprob: nats, per token, of the distribution drawn from; empty where the policy did not write.
        model_logprob: nats, per token, of the untempered model; empty where the policy did not write.
        version: of the weights each token was drawn under; empty where the policy did not write.
        top, entropy: of each token, where the rollout asked for them: the most likely tokens of the distribution that
            it was drawn from, and that distribution's entropy (nats). For the rollout that asked; not written to files.
        experts: of each token, the experts that the one before it went to, as the engine that drew it, or what follows
            it, recorded them (``Continuation.experts``); none where it did not.
        role: under which the policy wrote it; empty where the run has no roles.
        model: number of the model that wrote it, among the stage's (``core/roles.py``).
        finish: why the run ended: ``stop``, ``length``, or None where nothing was drawn, or where a trajectory goes on
            in a later step.
        text: the run decoded.
        grafted: True where the run was sampled off-prompt: written under another prompt than the one above it.
        address: identifies the node within its task, in every process: a hash of the tokens of a prompt, or of the
            place below a parent. Random draws are keyed by it.
        draws: continuations drawn from here so far: the number of the next one.
        key: name of the state that the run ends in, by an environment or a rollout: what is taken from equal states
            may be compared (``core/keys.py``). None where nothing names one.
        reward: what an environment paid for the turn that ends here, in its own unit.
        value: the rollout's estimate of the run's value, in the rollout's own unit, for credit to read; None without
            one.
        stats: whatever a component stores on nodes (visits, hints) for the rollout table; no other component reads it,
            but for what a reward function logged (``LOGGED``).
        others: of a trajectory that is the last of its episode: the leaves that the same attempt left before it, where
            its history was rewritten, or one agent called another. They are trained by the trajectory's grade, and have
            none of their own. Empty almost everywhere: an episode is then this one leaf.
    """

    parent: Node | None
    tokens: list[int]
    origin: Origin
    behaviour_logprob: list[float] = field(default_factory=list)
    model_logprob: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    finish: str | None = None
    text: str = ""
    grafted: bool = False
    address: int = 0
    draws: int = 0
    children: list[Node] = field(default_factory=list, repr=False)
    grade: Grade | None = None
    key: str | None = None
    reward: float = 0.0
    value: float | None = None
    role: str = ""
    model: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    top: list[TopTokens] = field(default_factory=list, repr=False)
    entropy: list[float] = field(default_factory=list, repr=False)
    experts: Choices = field(default_factory=no_choices, repr=False)
    others: list[Node] = field(default_factory=list, repr=False)

    @classmethod
    def prompt(cls, tokens: Sequence[int], text: str = "") -> Node:
        """A prompt, to be a tree's root."""
        return cls(None, list(tokens), Origin.PROMPT, text=text, address=counter_seed("prompt", *tokens))

    def add(self, tokens: Sequence[int], origin: Origin, text: str = "") -> Node:
        """A new child that the policy did not write."""
        address = counter_seed(self.address, origin.name, *tokens)
        child: Node = Node(self, list(tokens), origin, text=text, address=address)
        self.children.append(child)
        return child

    def add_drawn(
        self, drawn: Continuation, text: str = "", *, number: int | None = None, role: str = "", model: int = 0
    ) -> Node:
        """A new child with what the engine drew.

        Args:
            number: of the draw, among all from this node; None for the next one.
            role, model: of the new node.
        """
        if number is None:
            number, self.draws = self.draws, self.draws + 1
        child: Node = Node(
            self,
            drawn.tokens,
            Origin.POLICY,
            drawn.behaviour_logprob,
            drawn.model_logprob,
            drawn.version,
            drawn.finish,
            text,
            address=counter_seed(self.address, number),
            top=drawn.top,
            entropy=drawn.entropy,
            experts=drawn.experts,
            role=role,
            model=model,
        )
        self.children.append(child)
        return child

    def note_experts(self, choices: Choices) -> None:
        """Note where the tokens of the path to this node went, on the nodes that the policy did not write.

        Args:
            choices: of each token of the path but the first (``Continuation.prefix_experts``); none where nothing is
                recorded.
        """
        end = 0
        for node in self.path() if len(choices) else ():
            start, end = end, end + len(node.tokens)
            if not len(node.experts):
                before_first = np.full((int(not start), choices.shape[1]), -1, np.int16)
                node.experts = np.concatenate([before_first, choices[max(0, start - 1) : end - 1]])

    def detach(self) -> None:
        """Remove this node, with its subtree, from its parent, which may be a prompt that a guide chose."""
        assert self.parent is not None
        self.parent.children.remove(self)

    def move(self, above: Node) -> None:
        """Move this node, with its subtree, below another one."""
        self.detach()
        self.parent = above
        above.children.append(self)

    def path(self) -> list[Node]:
        """From the prompt down to this node."""
        nodes: list[Node] = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]

    def path_tokens(self) -> list[int]:
        return list(chain.from_iterable(node.tokens for node in self.path()))

    @property
    def root(self) -> Node:
        """The prompt above this node; itself for a prompt."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def below(self, start: Node) -> list[Node]:
        """The path from below ``start``, a node above this one, down to this node."""
        path = self.path()
        return path[path.index(start) + 1 :]

    @property
    def written(self) -> list[Node]:
        """The nodes below the prompt on the assistant's side: of the policy, a prefix, or a demonstration."""
        return [node for node in self.path()[1:] if node.origin in ASSISTANT]

    @property
    def completion(self) -> str:
        """The assistant's text: what graders read. What a user, an environment or a tool wrote is not in it."""
        return "".join(node.text for node in self.written)

    @property
    def completion_tokens(self) -> list[int]:
        return list(chain.from_iterable(node.tokens for node in self.written))

    @property
    def completion_ids(self) -> list[int] | None:
        """The assistant's tokens, for functions of users; None where only their text is known."""
        unknown = any(isinstance(node.tokens, UnknownTokens) for node in self.written)
        return None if unknown else self.completion_tokens

    @property
    def policy_tokens(self) -> int:
        """How many of the path's tokens the policy wrote: what counts against limits."""
        return sum(len(node.tokens) for node in self.path() if node.origin is Origin.POLICY)

    @property
    def episode(self) -> list[Node]:
        """All leaves of the episode that this trajectory ends, itself last."""
        return [*self.others, self]

    @property
    def episode_tokens(self) -> int:
        """How many tokens the assistant wrote in the episode, those that several of its leaves pass once."""
        written = {id(node): node for leaf in self.episode for node in leaf.written}
        return sum(len(node.tokens) for node in written.values())

    def walk(self) -> Iterator[Node]:
        """This node and its subtree, parents first, in the order they were added."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


def _helps(node: Node) -> bool:
    """Whether what stands below this node was not written under the task's own prompt alone."""
    return node.grafted or node.origin in (Origin.HINT, Origin.PREFIX, Origin.TEACHER)


def graft(leaf: Node, onto: Node) -> Node:
    """A trajectory copied below ``onto``, under another prompt, to be trained there.

    What both were given between prompt and start (a prefix) has as many nodes, and is not copied. Behaviour
    log-probabilities, versions and the grade stay those of the first prompt. To which experts the tokens went under it
    is forgotten.
    """
    below = onto
    for node in leaf.path()[len(onto.path()) :]:
        own = {"children": [], "stats": dict(node.stats), "others": [], "experts": no_choices()}
        copied = replace(node, parent=below, grafted=True, **own)
        below.children.append(copied)
        below = copied
    below.others = [graft(other, onto) if other.root is leaf.root else other for other in leaf.others]
    return below


def as_episode(leaves: Sequence[Node]) -> Node:
    """The trajectory that stands for an episode of these leaves, in the order in which they were left: the last, which
    graders read."""
    *others, last = dict.fromkeys(leaves)
    last.others = others
    return last


def is_correct(leaf: Node) -> bool:
    """Whether a graded leaf is correct; False for one without an outcome.

    Correct is what the grader's verdict says, or an outcome above 0 where it gives none.
    """
    if leaf.grade is None or leaf.grade.outcome is None:
        return False
    return leaf.grade.outcome > 0 if leaf.grade.verdict is None else leaf.grade.verdict


def solved(leaves: Iterable[Node], read: Callable[[Grade | None], bool | None] | None = None) -> float | None:
    """Accuracy of the leaves that the grader judges; None where it judges none.

    Args:
        read: how grades are read as verdicts; None decides by these leaves.
    """
    grades = [leaf.grade for leaf in leaves if leaf.grade is not None and leaf.grade.outcome is not None]
    read = read or verdict_reader(grades)
    known = [verdict for grade in grades if (verdict := read(grade)) is not None]
    return sum(known) / len(known) if known else None


LOGGED = "logged"
"""``Node.stats`` of a trajectory: column -> the value that a user's reward function logged for it."""
LOGGED_METRICS = "logged_metrics"
"""``Node.stats`` of the first trajectory of a call of such a function: name -> the numbers that the call logged."""


@dataclass(eq=False)
class Tree:
    """One task's trees: usually one prompt, more where some trajectories have another prompt (a hint).

    Attributes:
        roots: prompts; ``roots[0]`` is the task's own.
        chosen: the trajectories to train on where a rollout chooses; None takes every finished leaf. Each is an
            episode: what else the same attempt left is its ``others``.
        metadata: notes of guides and rollouts on this task (tiers of hints, searches, ...) by their names, for the
            rollout table: a :class:`~lyceum.core.notes.Note`, which components read by its class, or numbers and texts.
        sampled_tokens: tokens drawn by the engine for this task, discarded rollouts included.
        mean_abs_advantage: the mean over its trajectories of each one's mean |advantage| over its tokens, the
            curriculum's weight included; 0 where the tree was dropped, None before credit was assigned.
    """

    task: Task
    roots: list[Node]
    chosen: list[Node] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    sampled_tokens: int = 0
    mean_abs_advantage: float | None = None

    @property
    def root(self) -> Node:
        return self.roots[0]

    def nodes(self) -> Iterator[Node]:
        for root in self.roots:
            yield from root.walk()

    @property
    def trajectories(self) -> list[Node]:
        """Leaves to train on: ``chosen``, or every leaf whose continuation finished."""
        if self.chosen is not None:
            return self.chosen
        return [node for node in self.nodes() if not node.children and node.finish is not None]

    @property
    def unfinished(self) -> list[Node]:
        """Trajectories that go on in a later step: a tree with some is not trained yet."""
        return [leaf for leaf in self.chosen or () if leaf.finish is None]

    @property
    def graded(self) -> list[Node]:
        """Trajectories with an outcome; the others are counted as ungraded and left out of the forest."""
        return [leaf for leaf, _, _ in self.graded_with_outcome()]

    def graded_with_outcome(self) -> Iterator[tuple[Node, Grade, float]]:
        for leaf in self.trajectories:
            if leaf.grade is not None and leaf.grade.outcome is not None:
                yield leaf, leaf.grade, leaf.grade.outcome

    @property
    def solved(self) -> float | None:
        """Accuracy of the graded trajectories; None where no grader says."""
        return solved(self.graded)

    @property
    def unaided(self) -> list[Node]:
        """What the policy wrote by itself under the task's own prompt, with an outcome: no hint, no teacher.

        Trained or not: a failure that a guide has replaced still counts as a failure.
        """
        nodes = list(self.root.walk())
        ended = [node for node in nodes if node.grade is not None and node.grade.outcome is not None]
        if not any(map(_helps, nodes)):  # most trees
            return ended
        return [leaf for leaf in ended if not any(map(_helps, leaf.path()))]

    @property
    def solved_unaided(self) -> float | None:
        """Accuracy of ``unaided``; None where no grader says, or nothing was written unaided."""
        return solved(self.unaided)

    def add_prompt(self, tokens: Sequence[int], text: str = "") -> Node:
        """Another prompt of this task (e.g. one with a hint), to be continued like the first; the same node for the
        same tokens."""
        root = next((root for root in self.roots if root.tokens == tokens), None)
        if root is None:
            root = Node.prompt(tokens, text)
            self.roots.append(root)
        return root

    def notes(self, kind: type[AnyNote]) -> list[AnyNote]:
        """The notes of a class: several where several guides of a kind wrote them."""
        return [typed(kind, value) for name, value in self.metadata.items() if name.partition("#")[0] == kind.kind]

    def note(self, kind: type[AnyNote]) -> AnyNote | None:
        """The note of a class, the latest where there are several; None without one."""
        return next(reversed(self.notes(kind)), None)

    def add_note(self, note: Note) -> None:
        self.record(note.kind, note)

    def record(self, name: str, value: object) -> None:
        """Add to ``metadata``, the second value of a name as ``name#2``."""
        number = sum(other.partition("#")[0] == name for other in self.metadata) + 1
        self.metadata[name if number == 1 else f"{name}#{number}"] = value


def reasons_ungraded(trees: Sequence[Tree]) -> dict[str, int]:
    """Why trajectories could not be graded and how often, the most frequent first."""
    grades = (leaf.grade for tree in trees for leaf in tree.trajectories)
    counted = Counter(
        "never graded" if grade is None else grade.reason or "no outcome"
        for grade in grades
        if grade is None or grade.outcome is None
    )
    return dict(counted.most_common())


def details_ungraded(trees: Sequence[Tree]) -> dict[str, str]:
    """Reason -> details of its first occurrence, for reasons that have some: a user's function that raised."""
    grades = [leaf.grade for tree in trees for leaf in tree.trajectories if leaf.grade is not None]
    ungraded = [grade for grade in reversed(grades) if grade.outcome is None]
    return {grade.reason: grade.details for grade in ungraded if grade.reason and grade.details}
