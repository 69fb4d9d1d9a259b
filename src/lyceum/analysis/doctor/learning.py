"""Checks of what training does: its gradient, the weights that the engine then serves, the model that is saved."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from lyceum.analysis.doctor.plain import exact_gradients, free_bytes, gradients_in, plain_logits
from lyceum.analysis.doctor.result import CheckResult, LogprobDifference
from lyceum.analysis.doctor.sampling import OFF_POLICY
from lyceum.analysis.doctor.subject import (
    MOST_UPDATES,
    OBJECTIVE,
    PLAIN,
    RANDOM,
    SAMPLINGS,
    Draw,
    Subject,
    forest_of,
    group_advantages,
    learner_logprobs,
    model_logprobs,
)
from lyceum.core.types import Learner
from lyceum.models.load import ModelSettings, load_policy, save_policy
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor

GRADIENT_ROWS = 4
"""Maximum completions in the loss whose gradient is also computed in float64."""
STILL = 1e-20
"""Learning rate that changes no weight."""
VISIBLE, VISIBLE_COARSE = 1e-4, 1e-3
"""Learning rates that change log-probabilities by more than rounding does: in float32, and in half precision or of
adapters."""
CLEARLY = 10
"""How many times what rounding may do the weights have to move log-probabilities."""


async def gradients(subject: Subject) -> list[CheckResult]:
    """The gradient of a GRPO loss in the learner, against the same in float64 by transformers' own forward."""
    name = "gradients: against float64"
    policy = subject.policy
    # The least likely ones: where every token is nearly certain the gradient is little more than rounding.
    ranked = sorted(subject.all_samples, key=lambda draw: sum(draw.drawn.model_logprob) / len(draw.drawn.tokens))
    draws = [draw for draw in ranked if draw.prompt == ranked[0].prompt][:GRADIENT_ROWS]
    needed = 2 * 8 * sum(p.numel() for p in policy.module.parameters())
    free = free_bytes(policy)
    if free is not None and needed > free:
        found = f"the model takes {needed / 2**30:.1f} GiB in float64, {free / 2**30:.1f} GiB are free"
        return [CheckResult(name, "skipped", found)]
    exact = exact_gradients(policy, draws)
    learner = subject.learner(lr=STILL)
    forest, _ = forest_of(draws)
    metrics = learner.step(forest, group_advantages(forest), OBJECTIVE.build())
    own = gradients_in(learner.weights())
    if own.keys() != exact.keys():
        found = f"{len(own)} of {len(exact)} gradients are in this process after the update: the learner keeps its own"
        return [CheckResult(name, "skipped", found)]
    return [gradient_result(name, own, exact, metrics.get("grad_norm"), subject)]


def gradient_result(
    name: str, own: Mapping[str, Tensor], exact: Mapping[str, Tensor], norm: float | None, subject: Subject
) -> CheckResult:
    """
    Args:
        own: the learner's, after clipping.
        norm: the norm that it reports, before clipping; None where it reports none.
    """
    allowed = subject.allowed.gradient
    squares = {name: (_dot(own[name], own[name]), _dot(exact[name], exact[name])) for name in exact}
    dots = {name: _dot(own[name], exact[name]) for name in exact}
    own_norm, exact_norm = (math.sqrt(sum(of[i] for of in squares.values())) for i in (0, 1))
    scale = norm / own_norm if norm and own_norm else 1.0
    errors = {n: scale**2 * squares[n][0] - 2 * scale * dots[n] + squares[n][1] for n in exact}
    relative = math.sqrt(max(0.0, sum(errors.values()))) / exact_norm if exact_norm else math.inf
    cosine = sum(dots.values()) / (own_norm * exact_norm) if own_norm * exact_norm else 0.0
    worst = max(errors, key=lambda n: errors[n])
    cure = (
        "train the weights in float32: model.dtype=float32 learner.autocast=bfloat16, or without autocast"
        if subject.allowed.coarse
        else f"most of the error is in {worst}: a hook or layer of the model, or the learner; try learner.layout=rows"
    )
    return CheckResult.of(
        name,
        relative <= allowed and cosine >= 1 - allowed,
        f"relative error {relative:.1e}, cosine {cosine:.6f}, norm {exact_norm:.3g}",
        allowed=f"relative error {allowed:g} in {subject.allowed.precision}",
        cure=cure,
        relative_error=relative,
        cosine=cosine,
        norm=exact_norm,
        worst=worst,
    )


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a.double() * b.double()).sum())


async def publishing(subject: Subject) -> list[CheckResult]:
    """After updates and ``load`` the engine samples from the new weights, from paths that it kept too.

    Seen in nearly random samples: log-probabilities of tokens that are certain hardly move.
    """
    policy, allowed = subject.policy, subject.allowed
    draws = subject.samples[RANDOM]
    kept = await subject.draw(SAMPLINGS[RANDOM], len(subject.prompts), keep=True)
    learner = subject.learner(lr=VISIBLE_COARSE if policy.adapters or allowed.coarse else VISIBLE)
    before = learner_logprobs(learner, draws)
    moved = _update(subject, learner, draws, before)
    version = subject.engine.version + 1
    await subject.engine.load(learner.weights(), version)
    fresh = await subject.draw(SAMPLINGS[RANDOM], subject.request.samples)
    jobs = (subject.extend(half_of(draw), draw.sampling, [draw.seed]) for draw in kept)
    continued = [draw for part in await gather(jobs) for draw in part]
    told = {v for draw in [*fresh, *continued] for v in draw.drawn.version} | {subject.engine.version}
    learned = LogprobDifference.of(model_logprobs(fresh), learner_logprobs(learner, fresh))
    stale = "the engine still serves the old weights: Engine.load has to copy them, and to drop what it computed before"
    return [
        CheckResult.of(
            "publishing: the update",
            moved.mean >= CLEARLY * allowed.mean_nats,
            f"log-probabilities moved by {moved.mean:.1e} nats in the mean",
            allowed=f"at least {CLEARLY * allowed.mean_nats:g} after {MOST_UPDATES} updates",
            cure="updates do not change the weights: half precision rounds them away (model.dtype=float32), or nothing "
            "is trained",
            moved=moved.mean,
        ),
        learned.result(
            "publishing: engine and new weights", allowed, stale if learned.mean > moved.mean / 3 else OFF_POLICY
        ),
        LogprobDifference.of(model_logprobs(continued), learner_logprobs(learner, continued)).result(
            "publishing: kept prefixes",
            allowed,
            "the engine continued from keys and values of the old weights: Engine.load has to drop its prefix cache",
        ),
        CheckResult.of(
            "publishing: version",
            told == {version},
            f"tokens are of version {', '.join(map(str, sorted(told)))}",
            allowed=str(version),
            cure="Engine.load has to set version, and each token's version is that of the weights that drew it",
            versions=sorted(told),
        ),
    ]


def half_of(draw: Draw) -> list[int]:
    """The prompt and half of the completion."""
    return draw.path[: len(draw.prompt) + len(draw.drawn.tokens) // 2]


def _update(subject: Subject, learner: Learner, draws: list[Draw], before: list[list[float]]) -> LogprobDifference:
    """Train until log-probabilities have clearly moved; returns by how much."""
    forest, _ = forest_of(draws)
    moved = LogprobDifference.of(before, before)
    for _ in range(MOST_UPDATES):
        began = time.perf_counter()
        learner.step(forest, group_advantages(forest), OBJECTIVE.build())
        subject.trained_tokens_per_second = int(forest.row_length.sum()) / (time.perf_counter() - began)
        moved = LogprobDifference.of(before, learner_logprobs(learner, draws))
        if moved.mean >= CLEARLY * subject.allowed.mean_nats:
            break
    return moved


async def saving(subject: Subject) -> list[CheckResult]:
    """A model saved as a Hugging Face folder and loaded again gives the same logits, prompts and ends."""
    name, policy = "saving: logits", subject.policy
    size = sum(p.numel() * p.element_size() for p in policy.module.parameters())
    needed = size * (2 if policy.adapters else 1)  # merging works on a copy
    free = free_bytes(policy)
    with tempfile.TemporaryDirectory(prefix="lyceum-doctor-") as folder:
        for where, there in (("memory", free), (folder, shutil.disk_usage(folder).free)):
            if there is not None and needed > there:
                found = f"a copy takes {needed / 2**30:.1f} GiB, {there / 2**30:.1f} GiB are free ({where})"
                return [CheckResult(name, "skipped", found)]
        saved = Path(folder) / "model"
        save_policy(policy, saved)
        like = subject.request.model
        settings = ModelSettings(
            path=str(saved), dtype=like.dtype, device=like.device, trust_remote_code=like.trust_remote_code
        )
        try:
            loaded = load_policy(settings)
        except RecipeError as error:
            cure = "the saved folder cannot be loaded: what the model keeps outside its weights was not saved"
            return [CheckResult(name, "fails", " ".join(error.lines), "a folder that loads", cure)]
        draws = subject.samples[PLAIN][: len(subject.prompts)]
        pairs = list(zip(plain_logits(loaded, draws), plain_logits(policy, draws), strict=True))
        apart = max(float((a - b).norm() / b.norm()) for a, b in pairs)
        prompts = [tuple(loaded.render(task.messages)) for task in subject.request.tasks]
        same = prompts == subject.prompts and loaded.stop_ids == policy.stop_ids
    allowed = subject.allowed
    return [
        CheckResult.of(
            name,
            apart <= allowed.logits,
            f"differ by {apart:.1e} of their size after saving and loading",
            allowed=f"{allowed.logits:g} in {allowed.precision}",
            cure="what the model computes is not all in its weights and config.json: a hook, an untied layer, a "
            "buffer that is not saved",
            relative=apart,
        ),
        CheckResult.of(
            "saving: tokenizer",
            same,
            f"prompts and stop tokens are {'the same' if same else 'other'} after saving and loading",
            allowed="the same",
            cure="the tokenizer that is saved is not the one that is used; save it beside the model",
        ),
    ]
