"""A model whose tokens are characters, for rewards that read log-probabilities."""

from dataclasses import dataclass, field

EOS = 0


def tokens(text):
    return list(map(ord, text))


@dataclass
class Model:
    """A character has -1 nats below a prompt alone, -0.25 below a thought that says "sum", -2 below others."""

    scored: list = field(default_factory=list)
    averaged: list = field(default_factory=list)

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def encode(self, text):
        return [*tokens(text), EOS]

    def encode_after(self, path, text):
        return tokens(text)

    async def score(self, path):
        text = self.decode(path)
        self.scored.append(text)
        if len(path) > 40:
            raise ValueError("too many tokens to score")
        each = -1.0 if text.startswith("What? 4") else -0.25 if "sum" in text else -2.0
        return [0.0, *[each] * (len(path) - 1)]

    async def score_under(self, model, paths):
        assert model == "average"
        self.averaged += [self.decode(path.tokens[path.start : path.stop]) for path in paths]
        return [[-1.5] * (path.stop - path.start) for path in paths]
