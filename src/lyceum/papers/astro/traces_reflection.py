"""A finished search as one chain of thought (ASTRO): wrong turns, doubt, backtracking, and the correct path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from random import Random
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TracesSettings
from lyceum.core.spans import Decode
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Trace, Traces
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.seeds import counter_seed

STEP = "{step}"
"""Placeholder in ``backtrack`` for the number of the step that is gone back to."""


class Reflection(TracesSettings):
    """Incorrect trajectories of a tree before a correct one, each ended by a doubt and a backtrack.

    Source: ASTRO, arXiv:2507.00417, sections 2.3 (algorithm 1) and 2.4, appendix B. There a language model rewrites
    each step; here the tree's own texts stay, and only the text between them is a template. Left out: asking the model
    whether a correct solution was luck (the verifier is stronger), and doubts that turn out unfounded. Wrong turns
    follow in the order of a depth-first search, not at random: each backtrack then leads to a step of the path just
    left, which the step's number identifies.
    """

    kind: Literal["reflection"] = "reflection"
    searched: int = Field(default=3, ge=1)
    """Traces with wrong turns per tree; fewer if random draws coincide."""
    direct: int = Field(default=1, ge=0)
    """Correct trajectories per tree used as traces unchanged. For these only, see kind ``solutions``."""
    backtracks: int | None = Field(default=2, ge=1)
    """Maximum wrong turns per trace; the number is drawn, from 1 to this or what the tree has. Null tells all that the
    tree has, also those of one answer: the whole search, as far as it went before the correct path (ATS,
    arXiv:2310.10686)."""
    longest_turn: int | None = Field(default=None, ge=1)
    """Maximum nodes per wrong turn; null follows it to its end."""
    answers: tuple[str, ...] = ()
    """Strings that begin an answer. A wrong turn is cut before the first of them, since a verifier would take what
    follows as the answer of the whole trace; wrong turns of one trace have different answers."""
    reflection: str = Field(default=" But wait, is this right so far? Hmm.", min_length=1)
    """Text of the doubt after a wrong turn."""
    backtrack: str = " It may not be. Let's go back to step {step}. "
    """Text of the backtrack, after the doubt: ``{step}`` is the number of the path's nodes that stay, without the
    prompt."""
    restart: str | None = " It may not be. Let's start from the beginning. "
    """Text of the backtrack if no node stays; null uses ``backtrack`` with 0."""

    @model_validator(mode="after")
    def _templates_are_usable(self) -> Reflection:
        if STEP not in self.backtrack:
            raise ValueError(f"backtrack: got {self.backtrack!r}; allowed: a text with {STEP} in it")
        if "" in self.answers:
            raise ValueError("answers: got an empty text; allowed: texts with at least one character")
        for name in ("reflection", "backtrack", "restart"):
            text = getattr(self, name) or ""
            if mark := next((mark for mark in self.answers if mark in text), None):
                raise ValueError(
                    f"{name}: got {text!r}, which has {mark!r} of answers in it; allowed: a text without it, since "
                    "what follows would be taken for the answer"
                )
        return self

    def build(self) -> Traces:
        return self

    def check_policy(self, policy: Policy) -> None:
        """Raise RecipeError if the tokenizer cannot represent a template, or the digits of its step."""
        for name in ("reflection", "backtrack", "restart"):
            text = (getattr(self, name) or "").replace(STEP, "0123456789")
            if (read := policy.decode(policy.encode(text))) != text:
                raise RecipeError(
                    f"traces.{name}: got {text!r}, which the model's tokenizer reads back as {read!r}; "
                    "allowed: a text of what its vocabulary has"
                )

    def __call__(self, trees: Sequence[Tree], decode: Decode) -> list[Trace]:
        return [trace for tree in trees for trace in self.of(tree, decode)]

    def of(self, tree: Tree, decode: Decode) -> list[Trace]:
        leaves = [node for node in tree.root.walk() if node.grade is not None and node.grade.outcome is not None]
        right = distinct([leaf for leaf in leaves if is_correct(leaf)])
        wrong = [leaf for leaf in leaves if not is_correct(leaf) and leaf.finish == "stop"]
        rng = Random(counter_seed("reflection", tree.task.id))
        found = {
            decode(leaf.completion_tokens): tuple(leaf.completion_tokens)
            for leaf in rng.sample(right, min(self.direct, len(right)))
        }
        searched = self.tellable(right, wrong)
        made: dict[str, None] = {}
        for _ in range(self.searched if searched else 0):
            leaf, turns = rng.choice(searched)
            made[self.tell(leaf, self.draw(rng, turns))] = None
        messages = tree.task.messages
        return [
            *(Trace(tree.task.id, messages, text, tokens) for text, tokens in found.items()),
            *(Trace(tree.task.id, messages, text) for text in made),
        ]

    def tellable(self, right: Sequence[Node], wrong: Sequence[Node]) -> list[tuple[Node, list[Node]]]:
        """Correct leaves that have usable wrong turns, each with the incorrect leaves that may come before it."""
        pairs = [(leaf, [other for other in wrong if self.is_turn(other, leaf)]) for leaf in right]
        return [(leaf, turns) for leaf, turns in pairs if turns]

    def is_turn(self, wrong: Node, right: Node) -> bool:
        """Whether a wrong leaf's turn has any text that the correct path does not begin with."""
        return not right.completion.startswith(self.turn(wrong, 0, right))

    def draw(self, rng: Random, turns: Sequence[Node]) -> list[Node]:
        """A random choice of wrong leaves, no two with the same answer; or all."""
        if self.backtracks is None:
            return list(turns)
        by_answer: dict[str, list[Node]] = {}
        for leaf in turns:
            by_answer.setdefault(self.answer(leaf), []).append(leaf)
        count = rng.randint(1, min(self.backtracks, len(by_answer)))
        return [rng.choice(by_answer[answer]) for answer in rng.sample(sorted(by_answer), count)]

    def answer(self, leaf: Node) -> str:
        """Text from the first answer mark on; the text of the last node if there is none."""
        text = leaf.completion
        at = first_of(text, self.answers)
        return leaf.text if at is None else text[at:]

    def tell(self, right: Node, wrong: Sequence[Node]) -> str:
        """The chain of thought: each path from where it leaves the path before it."""
        text, at, told = "", list[Node](), list[str]()
        for leaf in search_order(right, wrong):
            path, whole = below_prompt(leaf), self.turn(leaf, 0, right)
            # A turn that is a prefix of one already told adds nothing.
            if any(said.startswith(whole) for said in told):
                continue
            told.append(whole)
            stays = shared(at, path)
            text += (self.reflection + self.way_back(stays) if text else "") + self.turn(leaf, stays, right)
            at = path
        path = below_prompt(right)
        stays = shared(at, path)
        return text + self.reflection + self.way_back(stays) + "".join(node.text for node in path[stays:])

    def turn(self, wrong: Node, stays: int, right: Node) -> str:
        """The text of a wrong leaf's path after its first ``stays`` nodes, as the trace has it."""
        path = below_prompt(wrong)
        end = None if self.longest_turn is None else shared(path, below_prompt(right)) + self.longest_turn
        text = "".join(node.text for node in path[stays:end])
        return text[: first_of(text, self.answers)]

    def way_back(self, step: int) -> str:
        return self.restart if step == 0 and self.restart is not None else self.backtrack.replace(STEP, str(step))


def search_order(right: Node, wrong: Sequence[Node]) -> list[Node]:
    """Wrong leaves in the order of a depth-first search that tries the correct path's step last at every node."""
    way = set(map(id, right.path()))

    def place(leaf: Node) -> list[tuple[bool, int]]:
        return [(id(node) in way, above.children.index(node)) for above, node in pairwise(leaf.path())]

    return sorted(wrong, key=place)


def below_prompt(leaf: Node) -> list[Node]:
    return leaf.path()[1:]


def shared(one: Sequence[Node], other: Sequence[Node]) -> int:
    """Number of nodes that two paths from the same prompt share: the depth of their lowest common ancestor."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False)))


def first_of(text: str, marks: Sequence[str]) -> int | None:
    """Position of the first of some marks in a text; None if there is none."""
    return min((at for mark in marks if (at := text.find(mark)) >= 0), default=None)


def distinct(leaves: Sequence[Node]) -> list[Node]:
    """The leaves without duplicates in tokens."""
    return list({tuple(leaf.completion_tokens): leaf for leaf in reversed(leaves)}.values())[::-1]
