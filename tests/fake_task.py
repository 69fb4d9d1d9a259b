"""What contexts without a model have in common: one task's tree, its grades, shares of its budget."""

import copy
from typing import cast

from lyceum.core.tree import Node, Tree
from lyceum.core.types import GradingContext, Task
from lyceum.utils.aio import run_async

NO_MODEL = cast(GradingContext, None)
"""For graders that ask no model."""


class FakeTask:
    """Subclasses draw (``extend``) and judge (``judged``); ``begin`` gives them their task."""

    task, tree = Task("t", ()), Tree(Task("t", ()), [])
    version = step = 0
    progress = 1.0
    shares = ()
    role = ""

    def begin(self, task, tokens=(90,), text="?"):
        self.task = task
        self.waits = []
        self.tree = Tree(task, [Node.prompt(tokens, text)])

    def judged(self, leaf):
        raise NotImplementedError

    @property
    def held(self):
        """Times that a rollout waited for grades, to go on by them."""
        return len(self.waits)

    async def grade(self, leaves):
        self.waits.append(len(leaves))
        return self.grade_now(leaves)

    def grade_now(self, leaves):
        for leaf in dict.fromkeys(leaf for leaf in leaves if leaf.grade is None):
            leaf.grade = self.judged(leaf)
        return [leaf.grade for leaf in leaves]

    def share(self, tokens):
        """Every share counts what is drawn through it or through shares of it."""
        shared = copy.copy(self)
        shared.shares = (*self.shares, [tokens])
        return shared

    def spoken(self, turn):
        return None

    async def outside(self, answer):
        return await answer

    def acting(self, role, task=None):
        acting = copy.copy(self)
        acting.role, acting.task = role, task or self.task
        return acting

    def spend(self, tokens):
        for left in self.shares:
            left[0] -= tokens

    def left(self, budget):
        return max(0, min([budget, *(left[0] for left in self.shares)]))


def roll(rollout, context, task=None, n=None, *, start=None):
    """The finished tree of a task, as a runtime would leave it.

    Args:
        start: tokens of another prompt, at which the rollout starts; by default the task's own.
    """
    task = task or Task("t", ())
    context.begin(task)

    async def run():
        node = context.tree.add_prompt(start) if start else context.tree.root
        context.tree.chosen = await rollout(context, node, task.samples or n)
        context.grade_now(context.tree.chosen)
        return context.tree

    return run_async(run())
