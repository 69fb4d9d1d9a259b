"""Frozen models that rewards and scorers read with, loaded at the first question, once for all that name the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from lyceum.core.component import PathText
from lyceum.core.needs import Need
from lyceum.core.types import FrozenName, GradingContext, Message, Scored
from lyceum.models.frozen import FrozenModelSettings
from lyceum.models.load import (
    BUILT_IN,
    ModelSettings,
    check_model,
    check_weights,
    load_policy,
    read_config,
)
from lyceum.models.packed_paths import path_logprobs
from lyceum.models.policy import Policy
from lyceum.models.weights import Checkpoint
from lyceum.utils.errors import RecipeError, errors_name
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.paths import local_path

MINILM, MINILM_FOLDER = "all-MiniLM-L6-v2", Path("models/all-minilm-l6-v2")
"""A sentence encoder by name, and the folder that ``make minilm`` fills."""
FROZEN: dict[str, FrozenName] = {"reference": "reference", "average": "average"}
"""Models of the stage that can be named in place of a path."""

FROZEN_NEEDS = (
    Need("reference", when=lambda own: own.model.path == "reference"),
    Need("average", when=lambda own: own.model.path == "average"),
)
"""What settings need whose ``model`` may be one of these."""

Family = Literal["AutoModel", "AutoModelForSequenceClassification"]


class ScorerModel(FrozenModelSettings):
    """A frozen model of a scorer's own."""

    path: PathText
    """A folder, or a hub name. For encoders also all-MiniLM-L6-v2, which ``make minilm`` fetches."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; ``auto`` uses a GPU where there is one."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def settings(self) -> ModelSettings:
        """The same as settings of a model to load."""
        path = str(MINILM_FOLDER) if self.path == MINILM else self.path
        return ModelSettings(**{**self.model_dump(), "path": path})

    def check(self, family: Family | None) -> None:
        """Refuse what cannot be loaded; no weight is read.

        Args:
            family: transformers' class that loads it; None for a causal model.
        Raises:
            RecipeError: as above.
        """
        if self.path == MINILM and not MINILM_FOLDER.is_dir():
            raise RecipeError(f"scorer.model.path: got {MINILM!r}, and there is no {MINILM_FOLDER}; run: make minilm")
        if family is not None and (self.path in BUILT_IN or self.path.endswith(".gguf")):
            raise RecipeError(f"scorer.model.path: got {self.path!r}; allowed: a folder or a hub name of such a model")
        with errors_name("scorer.model", "model"):
            check_model(self.settings)
            if family is None:
                check_weights(self.settings)
            elif local_path(self.settings.path).is_dir():
                self.checkpoint().check(getattr(transformers, family))

    def labels(self) -> int:
        """How many labels its configuration has."""
        with errors_name("scorer.model", "model"):
            return int(getattr(read_config(self.settings), "num_labels", 1))

    def checkpoint(self) -> Checkpoint:
        """Its weights, as files."""
        settings = self.settings
        source = str(local_path(settings.path)) if local_path(settings.path).exists() else settings.path
        may_leave = (*self.allow_unused_weights, "*position_ids")  # a buffer that older files have
        return Checkpoint("scorer.model", settings.path, source, {}, self.allow_missing_weights, may_leave)


@cache
def causal_model(model: ScorerModel) -> Policy:
    with errors_name("scorer.model", "model"):
        return load_policy(model.settings)


async def log_odds(
    model: ScorerModel,
    asked: Sequence[Sequence[Message]],
    words: tuple[str, str],
    context: GradingContext,
    batch_tokens: int,
) -> list[float]:
    """log p(first word) - log p(second word) of what a model says after each prompt, in nats.

    Args:
        model: ``reference`` or ``average`` of the stage, or one of its own, in whose tokens it is then asked.
        asked: chat messages.
        words: their tokens' log-probabilities are added up.
    Raises:
        ValueError: both words have the same tokens.
    """
    render: Callable[[Sequence[Message]], list[int]]
    encode: Callable[[str], list[int]]
    frozen = FROZEN.get(model.path)
    if frozen is not None:
        render, encode = context.render, context.encode
    else:
        policy = causal_model(model)
        render, encode = policy.render, policy.encode
    said = [encode(word)[:-1] for word in words]  # the end of sequence is not scored
    if said[0] == said[1]:
        raise ValueError(f"the model has the same tokens for {words[0]!r} and {words[1]!r}")
    paths: list[Scored] = []
    for messages in asked:
        prompt = render(messages)
        paths += [Scored([*prompt, *tokens], len(prompt), len(prompt) + len(tokens)) for tokens in said]
    if not paths:
        return []
    if frozen is not None:
        found = await context.score_under(frozen, paths)
    else:
        found = path_logprobs(causal_model(model), paths, batch_tokens)
    return [sum(a) - sum(b) for a, b in zip(found[::2], found[1::2], strict=True)]


def filled(template: str, fields: dict[str, str]) -> str:
    """A template with each ``{name}`` replaced at once: what a text contains is not read as a name."""
    pieces, rest = list[str](), template
    while rest:
        at, name = min(((rest.find(f"{{{name}}}"), name) for name in fields if f"{{{name}}}" in rest), default=(-1, ""))
        if at < 0:
            break
        pieces += [rest[:at], fields[name]]
        rest = rest[at + len(name) + 2 :]
    return "".join([*pieces, rest])


def probability(odds: float) -> float:
    """1 / (1 + exp(-odds)), for log-odds in nats."""
    return 1.0 / (1.0 + math.exp(min(-odds, 700.0)))
