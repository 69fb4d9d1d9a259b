"""What was loaded, on which machine, and how fast it samples and trains."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from importlib.metadata import version
from typing import Any, cast

from lyceum.analysis.doctor.result import CheckResult
from lyceum.analysis.doctor.servers import servers
from lyceum.analysis.doctor.subject import PLAIN, SAMPLINGS, Subject
from lyceum.models.load import load_weights, weight_shapes
from lyceum.models.rounded import rounded_layers, weight_of
from lyceum.utils.lazy_imports import torch
from lyceum.utils.memory import free_memory

BATCHES = (8, 32)
"""Sizes of the timed batches, in samples."""


async def loading(subject: Subject) -> list[CheckResult]:
    """Size, precision, adapters; whether embeddings are tied as the configuration says; what loading warned of."""
    policy, request = subject.policy, subject.request
    parameters = list(policy.module.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    total = sum(p.numel() for p in parameters)
    adapters = f"adapters (rank {request.model.lora.rank})" if request.model.lora is not None else "no adapters"
    about = (
        f"{type(policy.causal).__name__}, {_count(total)} parameters in {policy.causal.dtype}"
        f" on {policy.device}, {_count(trained)} trained, {adapters}, context {policy.context_length}"
    ).replace("torch.", "")
    return [
        CheckResult("loading: model", "note", about, values={"parameters": total, "trained": trained}),
        _ties(subject),
        *_rounding(subject),
        *(CheckResult("loading: warning", "note", warning) for warning in subject.warnings),
        *await servers(subject),
    ]


def _ties(subject: Subject) -> CheckResult:
    causal = subject.policy.causal
    said = bool(getattr(causal.config.get_text_config(), "tie_word_embeddings", False))
    embeddings = cast(Any, causal.get_input_embeddings()).weight
    tied = cast(Any, causal.get_output_embeddings()).weight.data_ptr() == embeddings.data_ptr()
    words = {True: "one weight", False: "two weights"}
    return CheckResult.of(
        "loading: embeddings",
        tied == said,
        f"input and output embeddings are {words[tied]}",
        allowed=f"{words[said]}, as config.json says",
        cure=f"set tie_word_embeddings to {str(tied).lower()} in config.json, or load another copy: tied weights are "
        "saved once, so one of the two would be lost",
        tied=tied,
        config=said,
    )


def _rounding(subject: Subject) -> list[CheckResult]:
    """How far rounded weights are from the files', relative to the norm of these; nothing where none are rounded."""
    policy, name = subject.policy, "loading: rounding"
    layers = rounded_layers(policy.causal)
    if not layers:
        return []
    settings = subject.request.model.model_copy(update={"quantise": None, "lora": None})
    whole, held = sum(map(math.prod, weight_shapes(settings).values())), sum(map(_bytes, layers.values()))
    needed, free = whole * policy.causal.dtype.itemsize, free_memory()
    if needed > free:
        found = f"the model takes {needed / 2**30:.1f} GiB before it is rounded, {free / 2**30:.1f} GiB are free"
        return [CheckResult(name, "skipped", found)]
    plain, apart, total = load_weights(settings, "cpu"), 0.0, 0.0
    worst = ("", 0.0)
    for place, layer in layers.items():
        place = place.removesuffix(".base_layer")
        weight = cast(Any, plain.get_submodule(place)).weight.detach().float()
        off, norm = float((weight_of(layer).cpu() - weight).square().sum()), float(weight.square().sum())
        apart, total = apart + off, total + norm
        worst = max(worst, (place, (off / norm) ** 0.5 if norm else 0.0), key=lambda of: of[1])
    error = (apart / total) ** 0.5 if total else 0.0
    numbers = sum(layer.in_features * layer.out_features for layer in layers.values())
    about = (
        f"{subject.request.model.quantise}: {len(layers)} matrices of {_count(numbers)} numbers, "
        f"{8 * held / numbers:.2f} bits each; off by {error:.2%} of their norm, {worst[0]} by {worst[1]:.2%}"
    )
    values = {"relative_error": error, "worst": worst[0], "worst_error": worst[1], "bytes": held}
    return [CheckResult(name, "note", about, values=values)]


def _bytes(layer: Any) -> int:
    """Bytes that a rounded layer's weight takes, its scales included."""
    scales = layer.scale if hasattr(layer, "scale") else layer.weight.quant_state.absmax
    return layer.weight.nbytes + scales.nbytes


async def speed(subject: Subject) -> list[CheckResult]:
    """Tokens per second sampled and trained, peak memory, and the machine."""
    sampled: dict[str, float] = {}
    for size in BATCHES:
        began = time.perf_counter()
        draws = await subject.draw(SAMPLINGS[PLAIN], size)
        tokens = sum(len(draw.drawn.tokens) for draw in draws)
        sampled[str(size)] = tokens / (time.perf_counter() - began)
    trained = subject.trained_tokens_per_second
    rates = ", ".join(f"{rate:,.0f} in a batch of {size}" for size, rate in sampled.items())
    learned = "" if trained is None else f"; trained: {trained:,.0f} (prompts included)"
    peak = peak_bytes(subject)
    about = "unknown on this system" if peak is None else f"{peak / 2**30:.2f} GiB at most"
    return [
        CheckResult(
            "speed",
            "note",
            f"tokens per second sampled: {rates}{learned}",
            values={"sampled": sampled, "trained": trained},
        ),
        CheckResult("memory", "note", about, values={"bytes": peak}),
        _machine(subject),
    ]


def peak_bytes(subject: Subject) -> int | None:
    """Most memory that the process, or the model on its GPU, has held; None where it is unknown."""
    if subject.policy.device.type == "cuda":
        return torch.cuda.max_memory_allocated(subject.policy.device)
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


def _machine(subject: Subject) -> CheckResult:
    device = subject.policy.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    values = {
        "device": f"{device} ({name})",
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "engine": subject.request.engine.model_dump(mode="json"),
        "learner": subject.request.learner.model_dump(mode="json"),
    }
    about = (
        f"{values['device']}, {values['cores']} cores, torch threads {values['threads']}, torch {values['torch']}, "
        f"transformers {values['transformers']}, engine {subject.request.engine.kind}, "
        f"learner {subject.request.learner.kind}"
    )
    return CheckResult("machine", "note", about, values=values)


def _count(number: int) -> str:
    return f"{number / 1e6:.1f}M" if number < 1e9 else f"{number / 1e9:.2f}B"
