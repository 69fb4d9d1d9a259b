"""Where a finished completion's steps end, for rollouts that draw it whole and split it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lyceum.core.steps import Steps
from lyceum.utils.stop_strings import ends_in_new


def step_ends(
    tokens: Sequence[int], model_logprob: Sequence[float], steps: Steps, decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Ends of a completion's steps, in tokens from its beginning; the last is the completion's own end.

    A step ends where a search that draws step by step would have ended it: at its separator, at its maximum length, or
    before a token that the policy was uncertain of.

    Args:
        model_logprob: log-probability of each token, in nats, untempered model; used only for steps by ``entropy``.
    """
    if not tokens:
        return []
    if steps.by == "entropy":
        return [*steps.cuts(model_logprob), len(tokens)]
    ends: list[int] = []
    start, text = 0, ""
    for end in range(1, len(tokens) + 1):
        now = decode(tokens[:end]) if steps.separators else ""
        if end - start == steps.tokens or ends_in_new(text, now, steps.separators):
            ends.append(end)
            start = end
        text = now
    return ends if ends[-1:] == [len(tokens)] else [*ends, len(tokens)]
