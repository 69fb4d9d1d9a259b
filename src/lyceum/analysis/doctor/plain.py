"""The references that the doctor compares with: transformers' own forward, the nucleus, gradients in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from jaxtyping import Float

from lyceum.analysis.doctor.subject import Draw, advantage_of
from lyceum.core.types import Sampling
from lyceum.models.policy import Policy
from lyceum.models.tree_attention import take_over
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers


@contextmanager
def plain_attention(policy: Policy) -> Iterator[transformers.PreTrainedModel]:
    """The same weights with transformers' own attention: one sequence at a time, no trees, no cache."""
    own = cast(str, policy.causal.config._attn_implementation)
    policy.causal.set_attn_implementation("eager")
    try:
        yield policy.causal
    finally:
        if policy.by_rows is None and policy.states is None:
            take_over(policy.causal)
        else:
            policy.causal.set_attn_implementation(own)


def plain_logits(policy: Policy, draws: Sequence[Draw]) -> list[Float[Tensor, "token V"]]:
    """Float32 logits that each drawn token is drawn from, by transformers' own forward."""
    with plain_attention(policy) as causal, torch.no_grad():
        return [_logits(causal, draw).float() for draw in draws]


def _logits(causal: transformers.PreTrainedModel, draw: Draw) -> Float[Tensor, "token V"]:
    tokens = torch.tensor([draw.path], device=causal.device)
    return causal(input_ids=tokens, use_cache=False).logits[0, len(draw.prompt) - 1 : -1]


def logprobs_of(logits: Sequence[Tensor], draws: Sequence[Draw]) -> list[list[float]]:
    """Log-probabilities (nats, temperature 1) of the drawn tokens."""
    return [taken(z.log_softmax(-1), draw).tolist() for z, draw in zip(logits, draws, strict=True)]


def taken(x: Float[Tensor, "token V"], draw: Draw) -> Float[Tensor, " token"]:
    return x.gather(1, torch.tensor(draw.drawn.tokens, device=x.device)[:, None]).squeeze(1)


def nucleus_bounds(
    logits: Float[Tensor, "token V"], draw: Draw, sampling: Sampling, slack: float
) -> tuple[list[float], list[float]]:
    """Lowest and highest log-probability (nats) of each drawn token after temperature and top-p.

        log p(token) - log sum of p over the nucleus,    p = softmax(logits / temperature)

    Rounding may move a token over the nucleus's edge: the nuclei of ``top_p`` less and plus ``slack`` bound it. Where a
    token is in neither both are -inf.

    Args:
        slack: probability.
    """
    p, order = (logits / sampling.usual_temperature).softmax(-1).sort(-1, descending=True)
    before = p.cumsum(-1) - p
    own = torch.tensor(draw.drawn.tokens, device=order.device)[:, None]
    at = (order == own).long().argmax(-1, keepdim=True)
    token = p.gather(1, at).squeeze(1).log()
    outside = before.gather(1, at).squeeze(1) >= sampling.top_p + slack
    sizes = [(p * (before < sampling.top_p + by)).sum(-1).log() for by in (slack, -slack)]
    low, high = ((token - size).masked_fill(outside, float("-inf")).tolist() for size in sizes)
    return low, high


def exact_gradients(policy: Policy, draws: Sequence[Draw]) -> dict[str, Tensor]:
    """Gradient of each trained weight in float64, of a group's loss.

        loss = mean over rows of (mean over tokens of -advantage_of(row) * logprob)

    By transformers' own forward, row by row. transformers itself computes norms and softmax in float32.
    """
    module = copy.deepcopy(policy.module).double()
    causal: Any = Policy(module, policy.tokenizer).causal
    causal.set_attn_implementation("eager")
    causal.set_experts_implementation("eager")  # the grouped product of mixtures of experts has no float64
    for row, draw in enumerate(draws):
        logprob = taken(_logits(causal, draw).log_softmax(-1), draw)
        (-advantage_of(row) * logprob.mean() / len(draws)).backward()
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad and p.grad is not None}


def gradients_in(module: nn.Module) -> dict[str, Tensor]:
    """The gradients that an update left in the module; empty where the learner keeps them elsewhere."""
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad and p.grad is not None}


def free_bytes(policy: Policy) -> int | None:
    """Free memory of the model's device; None where it is unknown."""
    if policy.device.type == "cuda":
        return torch.cuda.mem_get_info(policy.device)[0]
    meminfo = Path("/proc/meminfo")  # Linux
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10
