"""Checks of what the engine samples: its log-probabilities, its greedy choices, its repeatability."""

from __future__ import annotations

from itertools import chain, cycle, islice

from lyceum.analysis.doctor.plain import free_bytes, logprobs_of, nucleus_bounds, plain_logits, taken
from lyceum.analysis.doctor.result import CheckResult, LogprobDifference
from lyceum.analysis.doctor.subject import (
    NUCLEUS,
    PLAIN,
    RANDOM,
    SAMPLINGS,
    Draw,
    Subject,
    behaviour_logprobs,
    learner_logprobs,
    model_logprobs,
)
from lyceum.core.types import Learner, Sampling
from lyceum.utils.aio import gather
from lyceum.utils.lazy_imports import Tensor

OFF_POLICY = (
    "give engine and learner one precision (model.dtype, learner.autocast, the engine's own); what difference remains "
    "is corrected by objective.importance.mode=truncate"
)
GREEDY = Sampling(temperature=0.0)


async def log_probabilities(subject: Subject) -> list[CheckResult]:
    """The engine's log-probabilities against the learner's in each layout, and against transformers' own forward."""
    allowed, samples = subject.allowed, subject.samples
    every, plain_draws = subject.all_samples, samples[PLAIN]
    results: list[CheckResult] = []
    logits = plain_logits(subject.policy, [*plain_draws, *samples[NUCLEUS]])
    of_plain = logprobs_of(logits[: len(plain_draws)], plain_draws)
    of_engine = LogprobDifference.of(model_logprobs(plain_draws), of_plain)
    engine_cure = f"the engine computes another distribution than the model: {OFF_POLICY}"
    layouts = dict(subject.request.learner.layouts())
    if not subject.policy.trains_over_trees:
        del layouts["tree"]
    for number, (layout, settings) in enumerate(layouts.items()):
        learner = subject.learner(settings)
        draws = plain_draws if number else every
        found = learner_logprobs(learner, draws)
        of_learner = LogprobDifference.of(found[: len(plain_draws)], of_plain)
        cure = engine_cure
        if of_learner.mean > of_engine.mean:
            how = OFF_POLICY if allowed.coarse else "try another learner.layout, and report it"
            cure = f"the learner computes another distribution than the model: {how}"
        name = f"log-probabilities: engine and learner, {layout}"
        difference = LogprobDifference.of(model_logprobs(draws), found)
        results.append(difference.result(name, allowed, cure, learner_and_transformers=of_learner.mean))
        if number == 0:
            results += _behaviour(subject, learner, logits[len(plain_draws) :])
    results.insert(0, of_engine.result("log-probabilities: engine and transformers", allowed, engine_cure))
    results.append(await _scored(subject, plain_draws[: len(subject.prompts)], of_plain, engine_cure))
    return [*results, *await _at_length(subject)]


def _behaviour(subject: Subject, learner: Learner, logits: list[Tensor]) -> list[CheckResult]:
    """``behaviour_logprob``, of the distribution really drawn from: after temperature, and after top-p."""
    allowed = subject.allowed
    cure = (
        "behaviour_logprob has to be of the distribution drawn from, after temperature and truncation: "
        "importance weights start from it"
    )
    drawn, expected, temperatures = [], [], []
    for name, sampling in SAMPLINGS.items():
        if name not in (NUCLEUS, RANDOM):
            draws = subject.samples[name]
            drawn += behaviour_logprobs(draws)
            expected += learner_logprobs(learner, draws, sampling.usual_temperature)
            temperatures.append(f"{sampling.usual_temperature:g}")
    tempered = LogprobDifference.of(drawn, expected)
    truncated = subject.samples[NUCLEUS]
    nearest = []
    for z, draw in zip(logits, truncated, strict=True):
        low, high = nucleus_bounds(z, draw, SAMPLINGS[NUCLEUS], slack=allowed.mean_nats)
        given = draw.drawn.behaviour_logprob
        nearest.append([min(max(x, a), b) for x, a, b in zip(given, low, high, strict=True)])
    return [
        tempered.result(f"log-probabilities: drawn at temperature {', '.join(temperatures)}", allowed, cure),
        LogprobDifference.of(behaviour_logprobs(truncated), nearest).result(
            f"log-probabilities: drawn at {NUCLEUS}", allowed, cure
        ),
    ]


async def _scored(subject: Subject, draws: list[Draw], expected: list[list[float]], cure: str) -> CheckResult:
    """``Engine.score`` of a completion, which value models and teachers read."""
    scored = await gather(subject.engine.score(draw.path) for draw in draws)
    own = [score[len(draw.prompt) :] for score, draw in zip(scored, draws, strict=True)]
    difference = LogprobDifference.of(own, expected[: len(draws)])
    return difference.result("log-probabilities: scored text and transformers", subject.allowed, cure)


async def _at_length(subject: Subject) -> list[CheckResult]:
    """Engine and learner after a prompt as long as a recipe's, beyond the windows in which the model attends."""
    size, policy = subject.length, subject.policy
    if size is None:
        return []
    name = f"log-probabilities: {size:,} tokens"
    heads = policy.causal.config.get_text_config().num_attention_heads
    needed = (
        4 * 3 * size * (heads * size + policy.output.weight.shape[0])
    )  # scores and logits, and what is made of them
    free = free_bytes(policy)
    if free is not None and needed > free:
        found = f"transformers' own forward takes {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
        return [CheckResult(name, "skipped", found)]
    words = cycle(chain(*subject.prompts))
    draws = await subject.extend(
        list(islice(words, size - subject.request.tokens)), SAMPLINGS[PLAIN], [subject.seed_of(0), subject.seed_of(1)]
    )
    expected = logprobs_of(plain_logits(policy, draws), draws)
    of = {"engine": model_logprobs(draws), "learner": learner_logprobs(subject.learner(), draws)}
    cure = (
        "a window, or frequencies that depend on the length, are not transformers': a max_position_embeddings at which "
        "this passes (--length), and report it"
    )
    return [
        LogprobDifference.of(found, expected).result(f"{name}, {who} and transformers", subject.allowed, cure)
        for who, found in of.items()
    ]


async def greedy(subject: Subject) -> list[CheckResult]:
    """Each greedy token is the most likely one by transformers' own forward, or as likely up to rounding."""
    draws = await subject.draw(GREEDY, len(subject.prompts))
    short, best, tokens = 0.0, 0, 0
    for draw, z in zip(draws, plain_logits(subject.policy, draws), strict=True):
        logprob = z.log_softmax(-1)
        gap = logprob.max(-1).values - taken(logprob, draw)
        short, best, tokens = max(short, float(gap.max())), best + int((gap == 0).sum()), tokens + len(gap)
    allowed = subject.allowed.max_nats
    return [
        CheckResult.of(
            "greedy: engine and transformers",
            short <= allowed,
            f"{best} of {tokens} tokens are transformers' most likely, the others up to {short:.1e} nats below it",
            allowed=f"at most {allowed:g} nats below",
            cure="greedy samples are not the model's most likely tokens: the engine serves other weights, or changes "
            "the logits (a repetition penalty, a processor)",
            most_likely=best,
            tokens=tokens,
            nats_below=short,
        )
    ]


async def determinism(subject: Subject) -> list[CheckResult]:
    """The same request gives the same tokens again, and among other requests (up to rounding).

    Asked of nearly random samples among few tokens: where a token is certain no seed matters, and where thousands are
    possible rounding moves more draws.
    """
    among = [draw for draw in subject.samples[RANDOM] if draw.prompt == subject.prompts[0]]
    seeds = [draw.seed for draw in among]
    alone, again = [await subject.extend(subject.prompts[0], SAMPLINGS[RANDOM], seeds) for _ in range(2)]
    cure = "samples do not follow their seeds: each draw has to be a function of its request's seed and the position"
    return [
        _same(subject, "determinism: the same request twice", alone, again, cure),
        _same(subject, "determinism: alone and in a batch", alone, among, f"{cure}, whatever else is in the batch"),
    ]


def _same(subject: Subject, name: str, a: list[Draw], b: list[Draw], cure: str) -> CheckResult:
    """Completions that differ, against the tokens that were drawn after the same ones: those up to a difference."""
    differ = [first_difference(x, y) for x, y in zip(a, b, strict=True)]
    at = [place for place in differ if place is not None]
    compared = sum(len(x.drawn.tokens) if at is None else at + 1 for x, at in zip(a, differ, strict=True))
    first = "" if not at else f"; the first difference is at token {min(at) + 1}"
    share = subject.allowed.other_tokens
    return CheckResult.of(
        name,
        len(at) <= 1 + share * compared,
        f"{len(differ) - len(at)} of {len(differ)} samples are token for token the same{first}",
        allowed=f"{1 + int(share * compared)} draws of {compared} moved by rounding",
        cure=cure,
        samples=len(differ),
        first_differences=at,
        tokens_compared=compared,
    )


def first_difference(a: Draw, b: Draw) -> int | None:
    """Place of the first token in which two completions differ."""
    if a.drawn.tokens == b.drawn.tokens:
        return None
    pairs = zip(a.drawn.tokens, b.drawn.tokens, strict=False)
    shorter = min(len(a.drawn.tokens), len(b.drawn.tokens))
    return next((place for place, (x, y) in enumerate(pairs) if x != y), shorter)
