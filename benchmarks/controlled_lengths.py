"""A model whose completions have the lengths that a benchmark asks for, as a plain Hugging Face folder.

Real models end where they like, and two systems that sample differently would be timed on different lengths. Here the
length is a property of the weights, so that both systems draw from the same distribution without being told anything:
embeddings are orthonormal, the layers add next to nothing to them, and the output matrix is solved for, so that the
next token's probabilities are a function of the last token alone. Tokens of class i are followed by one of class i + 1,
any of them as likely, the last class by the end of sequence, and tokens of the endless class by one of the same. The
layers compute as much as they would in any model of that size.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

ASK = "="
"""A prompt must end with this character: what follows it decides how long the completion gets."""

_UNLIKELY = -25.0  # a logit: one draw in 10^10


def controlled_lengths(folder: Path, *, short: int, share_long: float, each: int = 6) -> Path:
    """Write a model of the small base's architecture and return its folder.

    Args:
        short: tokens of a short completion, its end of sequence included.
        share_long: probability that a completion never ends (it gets as long as the caller allows).
        each: characters in each class, all as likely.
    """
    import torch

    from lyceum.models.scratch import build_scratch

    if (folder / "config.json").exists():
        return folder
    model, tokenizer = build_scratch(seed=0)
    vocabulary: dict[Any, int] = tokenizer.get_vocab()
    end = vocabulary[tokenizer.eos_token]
    ask = vocabulary[ASK]
    free = [index for text, index in sorted(vocabulary.items(), key=lambda x: x[1]) if len(text) == 1 and index != ask]
    classes = [free[i * each : (i + 1) * each] for i in range(short - 1)]
    endless = free[(short - 1) * each :]
    if len(endless) < 2:
        raise ValueError(f"short: got {short} with {each} characters a class; the vocabulary has {len(free)}")

    size = len(vocabulary)
    logits = torch.full((size, size), _UNLIKELY)  # [last token, next token]
    for here, after in zip(classes, [*classes[1:], [end]], strict=True):
        for token in here:
            logits[token, after] = -math.log(len(after))
    for token in [*endless, end, vocabulary[tokenizer.pad_token], vocabulary[tokenizer.unk_token]]:
        logits[token, endless] = -math.log(len(endless))
    for first, probability in ((classes[0] if classes else [end], 1 - share_long), (endless, share_long)):
        if probability > 0:
            logits[ask, first] = math.log(probability / len(first))

    generator = torch.Generator().manual_seed(0)
    width = model.config.hidden_size
    basis, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
    with torch.no_grad():
        plain: Any = model
        plain.get_input_embeddings().weight.copy_(basis[:size])
        for layer in plain.model.layers:
            layer.self_attn.o_proj.weight.mul_(1e-5)
            layer.mlp.down_proj.weight.mul_(1e-5)
        # The last norm makes vectors of length sqrt(width) of the orthonormal embeddings.
        plain.get_output_embeddings().weight.copy_(logits.T @ basis[:size] / math.sqrt(width))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
