"""A model that writes what a test tells it to, for environments that the policy itself answers in."""

from fake_task import FakeTask

from lyceum.core.types import Continuation

END = 0


class Writes(FakeTask):
    """A model that writes this, one token per character; ``finish`` says whether a stop or the length ended it."""

    def __init__(self, text: str, finish: str = "stop", end: bool = False) -> None:
        self.drawn = [*map(ord, text), *([END] if end else [])]
        self.finish, self.asked = finish, []

    def encode_after(self, path, text):
        return list(map(ord, text))

    def decode(self, tokens):
        return "".join(chr(token) for token in tokens if token != END)

    async def ask(self, prefix, n, sampling, *, key):
        self.asked.append((self.decode(prefix[1:]), n, sampling, key))
        return [Continuation(self.drawn, [-1.0] * len(self.drawn), [], [0] * len(self.drawn), self.finish)]
