"""A context without a model: a few tokens, drawn in turn, and a grader that knows which paths are right."""

from fake_task import FakeTask

from lyceum.core.types import Continuation, Grade, Sampling
from lyceum.utils.seeds import counter_seed
from lyceum.utils.stop_strings import ends_in_new

END = 0


class FakeTreeContext(FakeTask):
    """Tokens are letters: 1 is ``a``. Below each node the next child begins with the next letter of ``letters``.

    Args:
        right: completion's text -> True, False, or None for a leaf that cannot be graded.
        letters: tokens a node's children take turns at.
        length: letters of a whole answer, after which the end of sequence (``END``, no text) comes.
        logprob: (text so far, letter) -> model log-probability.
    """

    def __init__(self, right, *, letters=(1, 2), length=3, logprob=lambda text, letter: -0.5, budget=1 << 62):
        self.right, self.letters, self.length, self.logprob, self.budget = right, letters, length, logprob, budget
        self.asked, self.kept, self.graded, self.turns = [], [], [], {}
        self.context_length = 1 << 30

    @property
    def sampled(self):
        return self.tree.sampled_tokens

    def decode(self, tokens):
        return "".join(chr(96 + token) for token in tokens if token != END)

    async def extend(self, node, n, sampling=None, *, keep=False, top=0, entropy=False):
        sampling = sampling or Sampling()
        self.asked.append((node.completion, n, sampling.max_completion_tokens))
        self.kept.append(keep)
        return [self._draw(node, sampling) for _ in range(n)]

    def _draw(self, node, sampling):
        before = self.decode(node.completion_tokens)
        tokens, logprob, finish = [], [], "length"
        turn = self.turns[node] = self.turns.get(node, len(node.children) - 1) + 1
        while len(tokens) < sampling.max_completion_tokens and finish == "length":
            text = before + self.decode(tokens)
            # The first letter goes round the siblings; what follows it is always the first letter.
            letter = self.letters[(turn if not tokens else 0) % len(self.letters)]
            tokens.append(END if len(text) == self.length else letter)
            logprob.append(-0.1 if tokens[-1] == END else self.logprob(text, letter))
            if tokens[-1] == END or ends_in_new(text, before + self.decode(tokens), sampling.stop):
                finish = "stop"
        self.tree.sampled_tokens += len(tokens)
        self.spend(len(tokens))
        drawn = Continuation(tokens, list(logprob), list(logprob), [0] * len(tokens), finish)
        return node.add_drawn(drawn, self.decode([*node.completion_tokens, *tokens])[len(node.completion) :])

    def judged(self, leaf):
        self.graded.append(leaf.completion)
        verdict = False if leaf.finish == "length" else self.right(leaf.completion)
        return Grade.ungraded("no verdict") if verdict is None else Grade(float(verdict), verdict)

    async def value(self, paths):
        return [0.5 for _ in paths]

    def tokens_left(self, node):
        return self.context_length - len(node.path_tokens())

    def seed(self, *key):
        return counter_seed("fake", *key)

    @property
    def budget_left(self):
        return self.left(self.budget - self.sampled)
