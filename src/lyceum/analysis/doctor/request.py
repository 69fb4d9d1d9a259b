"""What the doctor is asked to examine: checked before any model is loaded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from lyceum.analysis.measure import model_settings
from lyceum.core.settings import EngineSettings, LearnerSettings
from lyceum.core.types import Task
from lyceum.models.limits import context_of
from lyceum.models.load import ModelSettings, load_tokenizer
from lyceum.models.prompts import check_prompts
from lyceum.recipe.schema import Overrides, apply_overrides, parse, read_override, trusting_own
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError, nearest

KEYS = ("engine", "learner", "tasks")
"""Keys of a recipe that apply here, besides ``model.KEY``."""

PROMPTS = 2
"""Number of tasks whose prompts are sampled from."""

LEAST_SAMPLES, MOST_SAMPLES = 2 * PROMPTS, 256
"""At least two per prompt: one that rounding moved to another token is allowed."""
LEAST_TOKENS, MOST_TOKENS = 4, 4096


@dataclass(frozen=True)
class DoctorRequest:
    """
    Attributes:
        tasks: whose prompts are sampled from.
        samples: completions per sampling setting, over all prompts.
        tokens: maximum tokens per completion.
        length: tokens of the longest prompt and completion that is examined; None: beyond the model's windows.
        warnings: what was said of the model's files.
    """

    model: ModelSettings
    engine: EngineSettings
    learner: LearnerSettings
    tasks: tuple[Task, ...]
    samples: int
    tokens: int
    seed: int
    length: int | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: Any,
        overrides: Overrides = (),
        *,
        engine: Any = None,
        learner: Any = None,
        server: str | None = None,
        samples: int = 8,
        tokens: int = 16,
        seed: int = 0,
        length: int | None = None,
    ) -> DoctorRequest:
        """
        Args:
            model: as ``lyceum train model=...`` takes it, or a run's folder.
            overrides: ``engine.KEY``, ``learner.KEY``, ``model.KEY`` and ``tasks``, as for a recipe.
            engine, learner: a kind, or settings with a kind; before the overrides.
            server: address of a vLLM server, for engine=vllm-server.
        Raises:
            RecipeError: something cannot be used.
        """
        for option, given, least, most in (
            ("samples", samples, LEAST_SAMPLES, MOST_SAMPLES),
            ("tokens", tokens, LEAST_TOKENS, MOST_TOKENS),
        ):
            if not least <= given <= most:
                raise RecipeError(f"{option}: got {given}; allowed: {least} to {most}")
        if server is not None:
            if engine is not None:
                raise RecipeError(f"server: got {server!r} together with an engine; allowed: one of them")
            engine = {"kind": "vllm-server", "urls": [server]}
        of_model: dict[str, Any] = {}
        rest: list[tuple[str, Any]] = [
            (key, _parsed(key, value)) for key, value in (("engine", engine), ("learner", learner)) if value is not None
        ]
        for key, value in map(read_override, overrides):
            slot, _, name = key.partition(".")
            if slot == "model" and name:
                of_model[name] = value
            elif slot in KEYS:
                rest.append((key, value))
            else:
                allowed = [*KEYS, "model.KEY"]
                raise RecipeError(f"{key}: unknown key{nearest(slot, allowed)}; allowed: {', '.join(allowed)}")
        raw: dict[str, Any] = {"tasks": {"kind": "chain"}, "stages": [{"kind": "online"}], "seed": seed}
        raw["model"] = model_settings(model, of_model)
        with trusting_own(rest):
            apply_overrides(raw, rest)
            recipe = parse(raw)
        (stage,) = recipe.stages
        assert isinstance(stage, Online)
        stage.engine.reach(recipe.model)
        source = recipe.tasks.build("train", seed)
        with Heard() as heard:
            tokenizer = load_tokenizer(recipe.model)
            context = context_of(recipe.model, tokenizer)
        if 2 * tokens >= context:
            raise RecipeError(f"tokens: got {tokens}; allowed: less than half of the model's context of {context}")
        if length is not None and not 2 * tokens < length <= context:
            allowed = f"{2 * tokens + 1} (twice tokens, and 1) to the model's context of {context}"
            raise RecipeError(f"length: got {length}; allowed: {allowed}")
        if not len(source):
            raise RecipeError("tasks: got an empty source; allowed: at least one task")
        source = check_prompts("tasks", source, tokenizer, context - 2 * tokens)  # completions are continued once
        chosen = tuple(source[i] for i in range(min(PROMPTS, len(source))))
        return cls(
            recipe.model,
            stage.engine,
            stage.learner,
            chosen,
            samples,
            tokens,
            recipe.seed,
            length,
            tuple(heard.messages),
        )


def _parsed(key: str, value: Any) -> Any:
    """``{kind: embedded, pack_weights: false}`` as on a command line; a kind, or settings, unchanged."""
    return read_override(f"{key}={value}")[1] if isinstance(value, str) else value


class Heard(logging.Handler):
    """Keeps the warnings that lyceum logs inside; each is logged once per process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def __enter__(self) -> Heard:
        logging.getLogger("lyceum").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("lyceum").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
