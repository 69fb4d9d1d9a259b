"""The least work that a step can be done with, in FLOPs, to be held against the machine's matrix-multiply rate.

Every unique token once: what several samples share (a prompt, an opening that they drew alike) is computed once,
padding never, and a row whose advantage is 0 is not trained on. A multiply-add is two FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """Of a Llama-like model.

    Attributes:
        layers_weights: entries of all matrices inside the layers; each token meets each of them once.
        head_weights: entries of the output matrix; met by tokens that something is predicted from.
        attention: multiply-adds a token does for each token it attends to, over all layers, in the scores alone.
    """

    layers_weights: int
    head_weights: int
    attention: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Size:
        width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
        heads = config["num_attention_heads"]
        dim = config.get("head_dim") or width // heads
        kv_heads = config.get("num_key_value_heads") or heads
        layer = width * dim * (2 * heads + 2 * kv_heads) + 3 * width * inner
        return cls(layers * layer, width * config["vocab_size"], layers * heads * dim)

    def forward(self, contexts: Iterable[int], heads: int) -> float:
        """FLOPs of tokens that attend to so many tokens each, ``heads`` of them with logits."""
        tokens = attended = 0
        for context in contexts:
            tokens += 1
            attended += context
        # Scores and weighted values are one product each.
        return 2.0 * (tokens * self.layers_weights + heads * self.head_weights + 2 * attended * self.attention)


@dataclass(frozen=True)
class Row:
    """One trajectory: its prompt, what was drawn, and whether its advantage is other than 0."""

    prompt: Any
    prompt_tokens: int
    drawn: Sequence[Any]
    learns: bool


def of_step(size: Size, rows: Sequence[Row]) -> dict[str, float]:
    """Least FLOPs of generating the rows and of one update on them; and the tokens that this counts."""
    generate, drawn, prompts = _generation(size, rows)
    learning = [row for row in rows if row.learns]
    contexts, trained = _unique(learning)
    train = 3 * size.forward(contexts, trained)
    return {
        "generation": generate,
        "training": train,
        "total": generate + train,
        "unique_tokens_drawn": drawn,
        "tokens_drawn": sum(len(row.drawn) for row in rows),
        "unique_prompt_tokens": prompts,
        "unique_tokens_trained": len(contexts),
    }


def _generation(size: Size, rows: Sequence[Row]) -> tuple[float, int, int]:
    contexts, drawn = _unique(rows)
    prompts = len(contexts) - drawn
    # What ends a completion is drawn and never fed, but for those that others go on from; counting all is an upper
    # bound that is off by one token a row.
    return size.forward(contexts, drawn), drawn, prompts


def _unique(rows: Sequence[Row]) -> tuple[list[int], int]:
    """Context length of every unique token, and how many of them were drawn."""
    lengths = {row.prompt: row.prompt_tokens for row in rows}
    contexts = [at for length in lengths.values() for at in range(1, length + 1)]
    # A path is numbered by the number of the path above it and one token more.
    number: dict[tuple[Any, Any], int] = {("prompt", prompt): i for i, prompt in enumerate(lengths)}
    for row in rows:
        above = number["prompt", row.prompt]
        for at, token in enumerate(row.drawn):
            if (above, token) not in number:
                number[above, token] = len(number)
                contexts.append(row.prompt_tokens + at + 1)
            above = number[above, token]
    return contexts, len(number) - len(lengths)
