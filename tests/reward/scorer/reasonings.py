"""Trajectories as scorers read them, with a token per character, and a context without a model."""

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Reasoned, Task

PROMPT = "37+8-2="


class Characters:
    """A context whose tokens are characters. ``score`` is asked where a trajectory has no log-probabilities."""

    def __init__(self, logprob=-9.0):
        self.logprob, self.asked = logprob, 0

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def score(self, path):
        self.asked += 1
        return [0.0] + [self.logprob] * (len(path) - 1)


def leaf(text, logprobs=None):
    prompt = Node.prompt([ord(c) for c in PROMPT], PROMPT)
    tokens = [ord(c) for c in text]
    known = [-1.0] * len(tokens) if logprobs is None else logprobs
    return prompt.add_drawn(Continuation(tokens, known, known, [0] * len(tokens), "stop"), text)


def reasoned(text, logprobs=None, mark="#"):
    reasoning, _, answer = text.rpartition(mark)
    return Reasoned(leaf(text, logprobs), PROMPT, reasoning, answer)


TASK = Task("t/1", ({"role": "user", "content": PROMPT},), "43")
