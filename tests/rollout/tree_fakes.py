"""A context without a model: a few tokens, drawn in turn, and a grader that knows which paths are right."""

from contextlib import contextmanager

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Sampling
from lyceum.utils.seeds import counter_seed
from lyceum.utils.stop_strings import ends_in_new

END = 0


class FakeTreeContext:
    """Tokens are letters: 1 is ``a``. Below each node the next child begins with the next letter of ``letters``.

    Args:
        right: completion's text -> True, False, or None for a leaf that cannot be graded.
        letters: tokens a node's children take turns at.
        length: letters of a whole answer, after which the end of sequence (``END``, no text) comes.
        logprob: (text so far, letter) -> model log-probability.
    """

    def __init__(self, right, *, letters=(1, 2), length=3, logprob=lambda text, letter: -0.5, budget=1 << 62):
        self.right, self.letters, self.length, self.logprob, self.budget = right, letters, length, logprob, budget
        self.asked, self.sampled, self.kept, self.graded = [], 0, [], []
        self.context_length = 1 << 30
        self.held = 0

    def tree(self, task):
        return Tree(task, [Node(None, [90], Origin.PROMPT, text="?")])

    def decode(self, tokens):
        return "".join(chr(96 + token) for token in tokens if token != END)

    async def extend(self, node, n, sampling=None, *, keep=False):
        sampling = sampling or Sampling()
        self.asked.append((node.completion, n, sampling.max_completion_tokens))
        self.kept.append(keep)
        return [self._draw(node, sampling) for _ in range(n)]

    def _draw(self, node, sampling):
        before = self.decode(node.completion_tokens)
        tokens, logprob, finish = [], [], "length"
        turn = node.stats["turn"] = node.stats.get("turn", len(node.children) - 1) + 1
        while len(tokens) < sampling.max_completion_tokens and finish == "length":
            text = before + self.decode(tokens)
            # The first letter goes round the siblings; what follows it is always the first letter.
            letter = self.letters[(turn if not tokens else 0) % len(self.letters)]
            tokens.append(END if len(text) == self.length else letter)
            logprob.append(-0.1 if tokens[-1] == END else self.logprob(text, letter))
            if tokens[-1] == END or ends_in_new(text, before + self.decode(tokens), sampling.stop):
                finish = "stop"
        self.sampled += len(tokens)
        drawn = Continuation(tokens, list(logprob), list(logprob), [0] * len(tokens), finish)
        return node.add_drawn(drawn, self.decode(tokens))

    async def grade(self, leaves):
        self.graded += [leaf.completion for leaf in leaves]
        for leaf in leaves:
            verdict = False if leaf.finish == "length" else self.right(leaf.completion)
            leaf.grade = Grade.ungraded("no verdict") if verdict is None else Grade(float(verdict), verdict)
        return [leaf.grade for leaf in leaves]

    @contextmanager
    def returning(self):
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1

    def tokens_left(self, node):
        return self.context_length - len(node.path_tokens())

    def seed(self, *key):
        return counter_seed("fake", *key)

    @property
    def budget_left(self):
        return self.budget - self.sampled


class ElsewhereContext(FakeTreeContext):
    """As a guide's context: what is drawn below a task's prompt stands below another one, with a hint."""

    def tree(self, task):
        tree = super().tree(task)
        self.hinted = tree.add_prompt([90, 91], text="?!")
        self.prompt = tree.root
        return tree

    async def extend(self, node, n, sampling=None, *, keep=False):
        return await super().extend(self.hinted if node is self.prompt else node, n, sampling, keep=keep)

    async def value(self, paths):
        return [0.5 for _ in paths]
