"""Models that scorers read with: loaded at the first question, once for all scorers that name the same one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from jaxtyping import Float
from pydantic import model_validator

from lyceum.core.component import PathText, Settings
from lyceum.models.control_tokens import ControlTokens
from lyceum.models.load import (
    BASE,
    SCRATCH,
    ModelSettings,
    check_model,
    check_weights,
    errors_name,
    load_policy,
    read_config,
)
from lyceum.models.load import read_tokenizer as tokenizer_of
from lyceum.models.policy import Policy
from lyceum.models.weights import Checkpoint, check_finite
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch, transformers
from lyceum.utils.paths import local_path

MINILM, MINILM_FOLDER = "all-MiniLM-L6-v2", Path("models/all-minilm-l6-v2")
"""A sentence encoder by name, and the folder that ``make minilm`` fills."""
MOST_TOKENS = 8192
"""Maximum tokens of a text; what is longer is cut at its end, or at the model's own limit where that is lower."""

Family = Literal["AutoModel", "AutoModelForSequenceClassification"]


class ScorerModel(Settings):
    """A frozen model of a scorer's own."""

    path: PathText
    """A folder, or a hub name. For encoders also all-MiniLM-L6-v2, which ``make minilm`` fetches."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of its weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; ``auto`` uses a GPU where there is one."""
    allow_missing_weights: tuple[str, ...] = ()
    """Names of weights that its files may lack, ``*`` matches anything: initialised randomly. Others are refused."""
    allow_unused_weights: tuple[str, ...] = ()
    """Names of weights in its files that it may have no place for. Others are refused."""

    @model_validator(mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

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
        if family is not None and (self.path in (BASE, SCRATCH) or self.path.endswith(".gguf")):
            raise RecipeError(f"scorer.model.path: got {self.path!r}; allowed: a folder or a hub name of such a model")
        with errors_name("scorer.model"):
            check_model(self.settings)
            if family is None:
                check_weights(self.settings)
            elif local_path(self.settings.path).is_dir():
                self._checkpoint().check(getattr(transformers, family))

    def labels(self) -> int:
        """How many labels its configuration has."""
        with errors_name("scorer.model"):
            return int(getattr(read_config(self.settings), "num_labels", 1))

    def _checkpoint(self) -> Checkpoint:
        settings = self.settings
        source = str(local_path(settings.path)) if local_path(settings.path).exists() else settings.path
        may_leave = (*self.allow_unused_weights, "*position_ids")  # a buffer that older files have
        return Checkpoint("scorer.model", settings.path, source, {}, self.allow_missing_weights, may_leave)


class ScorerReader:
    """A model of a family with its tokenizer."""

    def __init__(self, settings: ScorerModel, family: Family) -> None:
        chosen = settings.settings
        device = "cuda" if chosen.device == "auto" and torch.cuda.is_available() else chosen.device
        with errors_name("scorer.model"):
            self.tokenizer: Any = tokenizer_of(chosen)
            loaded = settings._checkpoint().load(getattr(transformers, family), getattr(torch, chosen.dtype))
            check_finite("scorer.model.path", chosen.path, loaded)
        self.controls = ControlTokens(self.tokenizer)
        self.model: Any = cast(Any, loaded).to("cpu" if device == "auto" else device).eval().requires_grad_(False)
        self.model.config.pad_token_id = self.tokenizer.pad_token_id
        positions = getattr(loaded.config, "max_position_embeddings", MOST_TOKENS)
        self.most_tokens = int(min(MOST_TOKENS, self.tokenizer.model_max_length, positions))

    def read(self, texts: Sequence[Any]) -> tuple[Any, Tensor]:
        """(the model's output, attention mask) of texts or pairs of texts, padded together."""
        first, second = zip(*texts, strict=True) if isinstance(texts[0], tuple) else (texts, None)
        as_text = self.controls.as_text  # no text spells the mark that stands between those of a pair
        given = self.tokenizer(
            as_text(list(first)),
            None if second is None else as_text(list(second)),
            padding=self.tokenizer.pad_token is not None,
            padding_side="right",  # a text's positions are the same alone and in a batch
            truncation=True,
            max_length=self.most_tokens,
            return_tensors="pt",
        ).to(self.model.device)
        with torch.no_grad():
            return self.model(**given), given["attention_mask"]

    def batches(self, texts: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
        """Texts that go through the model together; one by one where it has no token to pad with."""
        size = size if self.tokenizer.pad_token is not None else 1
        return (texts[at : at + size] for at in range(0, len(texts), size))


@cache
def reader(model: ScorerModel, family: Family) -> ScorerReader:
    return ScorerReader(model, family)


@cache
def causal_model(model: ScorerModel) -> Policy:
    with errors_name("scorer.model"):
        return load_policy(model.settings)


def unit(vectors: Float[Tensor, "n width"]) -> Float[Tensor, "n width"]:
    """Each row at length 1; a row of zeros stays."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
