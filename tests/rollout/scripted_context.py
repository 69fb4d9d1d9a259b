"""A context whose policy is a function: what continues a text, by how many continuations of it were drawn before."""

import asyncio
import math
from random import Random

import fake_task

from lyceum.core.types import Continuation, Grade, Origin, Sampling, Task

END = "$"
"""Ends a sequence; decodes to nothing."""


class ScriptedContext(fake_task.FakeTask):
    """Tokens are characters.

    Args:
        write: (text below the prompt, continuations of it drawn before, sampling) -> what follows without a limit, as
            text, or as (character, behaviour log-probability, model log-probability) each, perhaps with the most likely
            characters and their log-probabilities, and with the entropy (-model log-probability by default).
        limit: tokens in the model's context, a prompt of one among them.
    """

    def __init__(self, write, *, budget=10**9, limit=10**9, progress=0.0, seed=0):
        self.write, self.budget, self.limit, self.progress, self.seeded = write, budget, limit, progress, seed
        self.asked = []
        """(text below the prompt, continuations, most tokens, keep) of each request."""
        self.rounds = []
        """Requests that waited together."""
        self.graded = []
        self._drawn = {}
        self._waiting = []

    def begin(self, task):
        super().begin(task, [ord("?")])

    @property
    def budget_left(self):
        return self.budget - self.tree.sampled_tokens

    def decode(self, tokens):
        return "".join(map(chr, tokens)).replace(END, "")

    def seed(self, *key):
        return Random("/".join(map(str, (self.seeded, *key)))).getrandbits(63)

    def tokens_left(self, node):
        return max(0, self.limit - len(node.path_tokens()))

    async def extend(self, node, n, sampling=None, *, keep=False, top=0, entropy=False):
        sampling = sampling or Sampling()
        assert self.tokens_left(node) > 0, "the engine refuses a prefix that fills the context"
        text = self.decode(node.completion_tokens)
        self._waiting.append((text, n))
        self.asked.append((text, n, sampling.max_completion_tokens, keep))
        await asyncio.sleep(0)  # whoever else asks meanwhile is in the same batch
        if self._waiting:
            self.rounds.append(self._waiting)
            self._waiting = []
        return [self._draw(node, text, sampling, top, entropy) for _ in range(n)]

    def choose(self, node, token, logprob, sampling):
        self.tree.sampled_tokens += 1
        finish = "stop" if chr(token) == END else "length"
        drawn = Continuation([token], [0.0], [logprob], [0], finish)
        return node.add_drawn(drawn, self.decode([*node.completion_tokens, token])[len(node.completion) :])

    def _draw(self, node, text, sampling, top, entropy):
        nth = self._drawn[text] = self._drawn.get(text, -1) + 1
        written = [
            token if isinstance(token, tuple) else (token, -1.0, -1.0) for token in self.write(text, nth, sampling)
        ]
        limit = min(sampling.max_completion_tokens, self.tokens_left(node))
        end = next((i + 1 for i, token in enumerate(written) if token[0] == END), len(written))
        cut = written[: min(limit, end)]
        assert len(cut) == min(limit, end), f"the script for {text!r} is too short"
        finish = "stop" if cut[-1][0] == END else "length"
        tokens, behaviour, model, *reports = zip(*cut, strict=True)
        tokens = [ord(token) for token in tokens]
        self.tree.sampled_tokens += len(tokens)
        drawn = Continuation(tokens, list(behaviour), list(model), [0] * len(tokens), finish)
        if top:
            drawn.top = [tuple((ord(token), nats) for token, nats in likely[:top]) for likely in reports[0]]
        if entropy:
            drawn.entropy = list(reports[1]) if reports else [-logprob for logprob in model]
        return node.add_drawn(drawn, self.decode([*node.completion_tokens, *tokens])[len(node.completion) :])

    def judged(self, leaf):
        self.graded.append(leaf)
        return Grade(float("right" in leaf.completion))


def roll(rollout, context, samples=None):
    return fake_task.roll(rollout.build(), context, Task("t", (), samples=samples))


def policy(distribution):
    """A ``write`` that draws as an engine does from ``distribution(text)``: character -> probability."""

    def write(text, nth, sampling):
        rng, written = Random(f"{text}/{nth}/{sampling.temperature}/{sampling.top_k}"), []
        cold = sampling.temperature or 1e-3
        while len(written) < sampling.max_completion_tokens and (not written or written[-1][0] != END):
            found = distribution(text + "".join(token for token, *_ in written))
            likely = sorted(found, key=lambda token: -found[token])[: sampling.top_k or None]
            weight = [(found[token] / found[likely[0]]) ** (1 / cold) for token in likely]
            (i,) = rng.choices(range(len(likely)), weight)
            # The other weights over all: what log(b) is where b is 1 to the last bit.
            others = sum(w for j, w in enumerate(weight) if j != i)
            nats = [*((token, math.log(found[token])) for token in likely), ("?", -math.inf)]
            entropy = -sum(found[token] * math.log(found[token]) for token in found)
            written.append((likely[i], -math.log1p(others / weight[i]), math.log(found[likely[i]]), nats, entropy))
        return written

    return write


def texts(leaves):
    return [leaf.completion for leaf in leaves]


def assert_whole(tree):
    """Every node below a prompt holds as many log-probabilities and versions as tokens, and knows its parent."""
    for node in tree.nodes():
        for child in node.children:
            assert child.parent is node
        if node.origin == Origin.POLICY:
            assert len(node.tokens) == len(node.behaviour_logprob) == len(node.model_logprob) == len(node.version) > 0
