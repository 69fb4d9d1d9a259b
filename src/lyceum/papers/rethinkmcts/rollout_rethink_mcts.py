"""Tree search over thoughts for programs, in which a thought whose program fails is rewritten (RethinkMCTS)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.settings import Composition
from lyceum.core.steps import GrownStep, Steps, grow
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Grade, Origin, Sampling
from lyceum.rollout._search import SearchSettings
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.terminal import quoted

NUMBER = re.compile(r"-?\d{1,3}(?:\.\d{1,6})?")
COUNTS = ("programs", "ungraded", "passed", "evaluated", "rethought", "better", "worse", "mended")


class RethinkMCTS(SearchSettings):
    """Searches thoughts, the lines before a program; each selected thought is tried by the program that follows it.

    A program is worth the share of public tests that it passes; one that passes all, ``tests_weight`` and the rest by
    the policy's own evaluation. Where it fails, the policy is shown it with the failed test and writes the last thought
    anew: the new one takes the old one's place in the search, and is tried by a program in turn. What comes below it is
    drawn with the last failure in view. All programs are trajectories, those of replaced thoughts too.

    Source: RethinkMCTS, arXiv:2409.09584, and its released code (models/RethinkMCTS.py), where feedback also has the
    analysis of a block of the program, and a thought's prior is a score that the model says.
    """

    sized_by = "iterations"
    requires: ClassVar = ("verifier",)

    kind: Literal["rethink-mcts"] = "rethink-mcts"
    iterations: int = Field(default=16, ge=1)
    """Thoughts that are selected and tried."""
    width: int = Field(default=3, ge=1)
    """Thoughts drawn per expansion; one of those with the same tokens is kept."""
    depth: int = Field(default=16, ge=1)
    """Maximum thoughts per trajectory."""
    step: Steps = Steps()
    """How thoughts are told apart, by lines, markers or tokens."""
    by: str = "code/passed"
    """The reward part that says which share of the public tests a program passes, as logged after ``reward/part/``. It
    must be the first part of the reward: what it says of a failure is shown to the policy."""
    rethinks: int = Field(default=1, ge=0)
    """How often a thought whose program fails is rewritten before the search goes on below it."""
    feedback: str = Field("This program fails: {failed}. Write it anew without the mistake.", min_length=1)
    """The user's message after a program that fails; {failed} is the first failed test, and how it failed."""
    evaluate: str | None = Field(
        "From -1 (wrong) to 1 (right), how correct is this program? Reply with a number.", min_length=1
    )
    """The user's message after a program that passes all public tests; the first number of the reply is the evaluation,
    and 0 stands where there is none. null: such a program is worth 1."""
    evaluation_tokens: int = Field(default=8, ge=1)
    """Maximum tokens of that reply, which is drawn greedily."""
    tests_weight: float = Field(default=0.8, ge=0, le=1)
    """Weight of the tests beside the evaluation."""
    discount: float = Field(default=0.9, gt=0, le=1)
    """Factor on a program's worth, per thought from it up to the prompt."""
    exploration: float = Field(default=4.0, ge=0)
    """c of the selection score, in the unit of a program's worth."""
    exploration_base: float = Field(default=10.0, gt=0)
    """Visits at which the selection score's weight of the prior begins to grow."""

    @field_validator("feedback")
    @classmethod
    def _only_the_failure(cls, feedback: str) -> str:
        if unknown := set(fields_of(feedback)) - {"failed"}:
            raise ValueError(f"got {{{unknown.pop()}}}; allowed: {{failed}}")
        return feedback

    def note(self, trees: Sequence[Tree]) -> str | None:
        counts = self.metrics(trees)
        if counts["programs"] and counts["ungraded"] == counts["programs"]:
            return f"no program has the reward part {quoted(self.by)} (rollout.by): the search knows nothing of them"
        return self.step.unseen_in(trees)

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.step.by == "entropy":
            lines.append(
                "rollout.step.by: got 'entropy' with rollout.kind 'rethink-mcts'; allowed: tokens, lines, marker"
            )
        first = stage.reward[0].kind if stage.reward else None
        if first is not None and self.by.partition("/")[0] != first:
            lines.append(
                f"rollout.by: got {self.by!r}, but the first part of the reward is {first!r}, whose failures are shown "
                f"to the policy; allowed: a name that begins with {first!r}"
            )
        return lines

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """What was tried in a step: programs, those without a share of tests, those that passed all; evaluations;
        thoughts rewritten, and how many of the next programs were better, worse, or passed all."""
        notes = [tree.metadata[self.kind] for tree in trees if self.kind in tree.metadata]
        return {name: sum(note[name] for note in notes) for name in COUNTS}

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        search = RethinkSearch(self, context, start)
        await search.run(n or self.iterations)
        search.root.tell()
        context.tree.record(self.kind, {name: search.counts[name] for name in COUNTS} | {"ended": search.ended})
        return search.programs


@dataclass(eq=False)
class Thought:
    """A thought as the search sees it.

    Attributes:
        node: its tokens; of the search's root, where the search starts.
        above: the thought above; None for the root.
        prior: how likely the policy finds it: the geometric mean of its tokens' probabilities; 1 of a rewritten one.
        visits: times that it was tried or passed, plus one.
        returns: the worth of programs tried at it or below, discounted.
        terminal: whether the trajectory is over: it is a program, or has no token left for one.
        worth: of a terminal one, once it was tried.
    """

    node: Node
    above: Thought | None = None
    prior: float = 1.0
    visits: int = 1
    returns: list[float] = field(default_factory=list)
    terminal: bool = False
    worth: float | None = None
    children: list[Thought] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return 0 if self.above is None else self.above.depth + 1

    @property
    def best(self) -> float:
        """Q: the highest return; 0 without one."""
        return max(self.returns, default=0.0)

    def back_up(self, worth: float, discount: float) -> None:
        """Visit every thought up to the root; each return is ``discount`` times the one below it."""
        self.visits += 1
        at = self
        while at.above is not None:
            worth *= discount
            at.returns.append(worth)
            at.above.visits += 1
            at = at.above

    def tell(self) -> None:
        """Note on the tree's nodes what the search knows of them, for the rollout table."""
        self.node.stats |= {"visits": self.visits, "value": round(self.best, 6)}
        for child in self.children:
            child.tell()

    def replaced_by(self, node: Node, *, terminal: bool) -> None:
        """Put another thought into this node; the old one's prior, value, returns and children are discarded."""
        self.node, self.prior, self.terminal, self.worth = node, 1.0, terminal, None
        self.returns, self.children = [], []


def selection_score(best: float, prior: float, tried: int, visits_above: int, c: float, base: float) -> float:
    """Q + (ln((N + base + 1) / base) + c) p sqrt(ln N) / (1 + n).

    Args:
        best: Q, the highest return.
        tried: n, the number of returns.
        visits_above: N, at least 1.
    Source:
        RethinkMCTS, arXiv:2409.09584, released code (models/RethinkMCTS.py, var_p_ucb; Q: chance_node_value).
    """
    weight = math.log((visits_above + base + 1) / base) + c
    return best + weight * prior * math.sqrt(math.log(visits_above)) / (1 + tried)


class RethinkSearch:
    """One search."""

    def __init__(self, settings: RethinkMCTS, context: Context, start: Node) -> None:
        self.settings, self.context = settings, context
        self.root = Thought(start)
        self.programs: list[Node] = []
        self.counts: Counter[str] = Counter()
        self.ended = "iterations"

    async def run(self, iterations: int) -> None:
        await self.expand(self.root, start=None)
        for _ in range(iterations):
            thought = self.select()
            if thought.worth is not None:  # a program that was tried before
                thought.back_up(thought.worth, self.settings.discount)
                continue
            if self.context.budget_left < 1:
                self.ended = "tokens"
                return
            await self.visit(thought)

    def select(self) -> Thought:
        thought = self.root
        while thought.children:
            thought = max(thought.children, key=self.score)
        return thought

    def score(self, thought: Thought) -> float:
        above, settings = thought.above, self.settings
        assert above is not None
        tried, c, base = len(thought.returns), settings.exploration, settings.exploration_base
        return selection_score(thought.best, thought.prior, tried, above.visits, c, base)

    async def visit(self, thought: Thought) -> None:
        """Try a thought, rewrite it while its program fails, back up the last program's worth, and expand it."""
        before: float | None = None
        rethinks = 0
        while True:
            program, share, failed = await self.tried(thought)
            if before is not None:
                self.counts["better"] += share > before
                self.counts["worse"] += share < before
                self.counts["mended"] += share == 1
            told = None if failed is None else self.told(program, failed)
            if told is None or thought.terminal or rethinks >= self.settings.rethinks:
                break
            if thought.above is None or not await self.rethink(thought, thought.above, told):
                break
            before, rethinks = share, rethinks + 1
        worth = share if share < 1 else await self.evaluated(program)
        if thought.terminal:
            thought.worth = worth
        thought.back_up(worth, self.settings.discount)
        if not thought.terminal:
            await self.expand(thought, start=told)

    async def tried(self, thought: Thought) -> tuple[Node, float, str | None]:
        """The program that follows a thought, the share of public tests that it passes, and how it fails; None where it
        passes all, or could not be graded (it then counts as one that passes none)."""
        program, left = thought.node, self.left(thought.node)
        if not thought.terminal and left > 0:
            (program,) = await self.context.extend(thought.node, 1, self.settings.sampling.at_most(left))
        elif not thought.terminal:
            program.finish, thought.terminal = "length", True
        self.programs.append(program)
        (grade,) = await self.context.grade([program])
        share = self.share(grade)
        self.counts["programs"] += 1
        self.counts["ungraded"] += share is None
        self.counts["passed"] += share == 1
        return program, share or 0.0, None if share is None or share == 1 else grade.details or ""

    def share(self, grade: Grade) -> float | None:
        share = grade.parts.get(self.settings.by)
        return None if grade.outcome is None or share is None else min(1.0, max(0.0, share))

    def told(self, program: Node, failed: str) -> Node | None:
        """The prompt that shows a program and how it fails; None where the model's context has no room for it."""
        return self.follow(program, fill(self.settings.feedback, {"failed": failed.strip()}))

    def follow(self, program: Node, message: str) -> Node | None:
        keep, tokens = self.context.follow(program, [{"role": "user", "content": message}])
        path = [*program.path_tokens()[:keep], *tokens]
        if self.context.tokens_left(Node.prompt(path)) < 1 or self.context.budget_left < 1:
            return None
        return self.context.tree.add_prompt(path, message)

    async def rethink(self, thought: Thought, above: Thought, told: Node) -> bool:
        """Replace a thought by one that the policy writes with the failure in view; False where no token is left."""
        grown = await self.grow(above, 1, told)
        if not grown:
            return False
        self.counts["rethought"] += 1
        thought.node.stats["replaced"] = 1
        node, terminal = grown[0]
        thought.replaced_by(node, terminal=terminal)
        return True

    async def expand(self, thought: Thought, start: Node | None) -> None:
        """Draw the thoughts below one.

        Args:
            start: the prompt that shows the last failure; None: the search's own.
        """
        if thought.depth >= self.settings.depth:
            return
        seen: set[tuple[int, ...]] = set()
        for node, terminal in await self.grow(thought, self.settings.width, start):
            if tuple(node.tokens) in seen:
                node.detach()
                continue
            seen.add(tuple(node.tokens))
            thought.children.append(Thought(node, thought, prior_of(node), terminal=terminal))

    async def grow(self, above: Thought, n: int, start: Node | None) -> list[tuple[Node, bool]]:
        """Up to ``n`` thoughts below one, and whether each ended the trajectory.

        Under another prompt the thoughts so far are given, and what is drawn is copied below them: it was written
        off-prompt, and its behaviour log-probabilities are those of that prompt.
        """
        at = above.node if start is None else self.given(above, start)
        left = self.left(at)
        n = min(n, self.context.budget_left // min(left, self.settings.step.tokens)) if left > 0 else 0
        if n < 1:
            return []
        sampling = self.settings.sampling
        if start is not None:  # the thoughts that are given count as well
            sampling = sampling.at_most(max(1, self.left(above.node)))
        depth_left = self.settings.depth + 1 - above.depth
        grown = await grow(self.context, at, n, self.settings.step, sampling, depth_left=depth_left)
        return [(one.nodes[-1] if start is None else copied(one, above.node), one.terminal) for one in grown]

    def given(self, thought: Thought, prompt: Node) -> Node:
        """The thoughts up to one, as a beginning that is given below a prompt."""
        at = prompt
        for node in thought.node.below(self.root.node):
            same = (below for below in at.children if below.tokens == node.tokens and below.origin is Origin.PREFIX)
            at = next(same, None) or at.add(node.tokens, Origin.PREFIX, node.text)
        return at

    async def evaluated(self, program: Node) -> float:
        """The worth of a program that passes all public tests."""
        settings = self.settings
        asked = None if settings.evaluate is None else self.follow(program, settings.evaluate)
        if asked is None:
            return 1.0
        self.counts["evaluated"] += 1
        tokens = min(settings.evaluation_tokens, self.context.budget_left, self.context.tokens_left(asked))
        (reply,) = await self.context.extend(asked, 1, Sampling(temperature=0.0, max_completion_tokens=tokens))
        found = NUMBER.search(reply.text)
        said = 0.0 if found is None else min(1.0, max(-1.0, float(found[0])))
        return settings.tests_weight + (1 - settings.tests_weight) * said

    def left(self, node: Node) -> int:
        """Tokens left for a trajectory through a node."""
        left = self.settings.sampling.max_completion_tokens - node.policy_tokens
        return min(left, self.context.tokens_left(node), self.context.budget_left)


def copied(one: GrownStep, above: Node) -> Node:
    """What was drawn below another prompt, copied below ``above``."""
    (drawn,) = one.nodes
    node = replace(drawn, parent=above, grafted=True, children=[], stats={})
    above.children.append(node)
    return node


def prior_of(node: Node) -> float:
    """The geometric mean of the probabilities of a thought's tokens."""
    return math.exp(sum(node.model_logprob) / len(node.model_logprob)) if node.model_logprob else 1.0
