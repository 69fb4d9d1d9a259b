"""Models that no gradient changes: the reference (the policy as the stage began, or an average of several models), a
teacher, a slow average."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from lyceum.core.component import PathText, Settings
from lyceum.core.types import FrozenName, State
from lyceum.models.load import (
    ModelSettings,
    check_weights,
    load_policy,
    merged,
    read_tokenizer,
    weight_shapes,
)
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError, errors_name
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers
from lyceum.utils.terminal import quoted


class FrozenModelSettings(Settings):
    """A model that is loaded beside the policy."""

    path: PathText
    """``base`` (the small model in this package), a folder such as ``runs/NAME/model``, a hub name, a .gguf file."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of its weights."""
    allow_missing_weights: tuple[str, ...] = ()
    """Names of weights that its files may lack, ``*`` matches anything: initialised randomly. Others are refused."""
    allow_unused_weights: tuple[str, ...] = ()
    """Names of weights in its files that it may have no place for. Others are refused."""

    @model_validator(mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class TeacherSettings(FrozenModelSettings):
    """A frozen model of the policy's own vocabulary, to learn from."""

    def model(self, device: str) -> ModelSettings:
        """The same as settings of a model to load."""
        return ModelSettings(**self.model_dump(), device="cuda" if device == "cuda" else "cpu")


class AveragedModel(Settings):
    """One of the models whose weights are averaged."""

    path: PathText | None = None
    """``policy`` (the model that enters the stage), ``base``, a folder such as ``runs/NAME/model``, a hub name."""
    from_stage: str | None = Field(default=None, max_length=60)
    """Name of an earlier stage of the run: the model that it left."""
    share: float = Field(default=1.0, gt=0, le=1e6)
    """Weight in the average, relative to the others' (no unit)."""

    @model_validator(mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_model(self) -> AveragedModel:
        if (self.path is None) == (self.from_stage is None):
            what = "neither" if self.path is None else "both"
            raise ValueError(f"path and from_stage: got {what}; allowed: one of them")
        return self

    @property
    def file(self) -> str | None:
        """Its path, where it is neither the policy nor left by a stage."""
        return None if self.path == POLICY else self.path


POLICY = "policy"


class ReferenceSettings(Settings):
    """A reference that is the average of several models' weights (a model soup)."""

    average: tuple[AveragedModel, ...] = Field(min_length=1, max_length=16)
    """The models: paths, or ``{from_stage: NAME}``, each with a ``share``; all with the policy's tokenizer and
    configuration."""

    def of_run(self, stages: Path) -> ReferenceSettings:
        """The same, with paths instead of names of stages.

        Args:
            stages: the run's folder of what its stages left.
        """

        def found(one: AveragedModel) -> AveragedModel:
            if one.from_stage is None:
                return one
            return AveragedModel(path=str(stages / one.from_stage / "model"), share=one.share)

        return ReferenceSettings(average=tuple(map(found, self.average)))


class AverageSettings(Settings):
    """An exponential moving average of the policy's weights: a + (1 - decay) * (policy - a), every so many steps."""

    decay: float = Field(ge=0, lt=1)
    """Share of the average that each of its updates keeps (no unit)."""
    every: int = Field(default=1, ge=1)
    """Steps of the stage between its updates."""


class FrozenModel(Protocol):
    """A frozen model as the learner uses it, under ``torch.no_grad``."""

    def loaded(self) -> AbstractContextManager[Policy]:
        """The model, to be forwarded inside the context only: its weights may be the policy's own, exchanged."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of its hidden states; outside the context too, in a backward pass."""
        ...

    def state(self) -> State | None:
        """Its weights, where a resumed run cannot make them again; else None."""
        ...

    def load_state(self, state: State) -> None: ...


class FrozenCopy:
    """A model of its own: a copy of the policy, whose weights are saved, or a teacher, which is read again."""

    def __init__(self, policy: Policy, *, saved: bool) -> None:
        policy.module.requires_grad_(False)
        self.policy, self.saved = policy, saved

    def loaded(self) -> AbstractContextManager[Policy]:
        return nullcontext(self.policy)

    def head(self, hidden: Tensor) -> Tensor:
        return self.policy.head(hidden)

    def state(self) -> State | None:
        return self.policy.module.state_dict() if self.saved else None

    def load_state(self, state: State) -> None:
        if self.saved:
            self.policy.module.load_state_dict(state)

    def changed(self) -> None:
        """Its weights have other values now: nothing is made of them beforehand."""


class FrozenAdapters:
    """The policy with the adapters that it had when this was made, which are all that training changes.

    An earlier stage may have trained them: the reference is not the model without adapters.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.adapters = [p.detach().clone() for p in self._current()]
        self.output = self._output()

    def _current(self) -> list[nn.Parameter]:
        return [p for p in self.policy.module.parameters() if p.requires_grad]

    def _output(self) -> nn.Module:
        """The output layer as it is now: the policy's own, which has no adapters unless they are asked for by name."""
        output = self.policy.output
        if not any(p.requires_grad for p in output.parameters()):
            return output
        return copy.deepcopy(output).requires_grad_(False)

    @contextmanager
    def loaded(self) -> Iterator[Policy]:
        now = [p.detach().clone() for p in self._current()]
        copy_values(self.adapters, self._current())
        try:
            yield self.policy
        finally:
            copy_values(now, self._current())

    def head(self, hidden: Tensor) -> Tensor:
        return self.policy.head(hidden, self.output)

    def state(self) -> State | None:
        return {"adapters": self.adapters}

    def load_state(self, state: State) -> None:
        copy_values(state["adapters"], self.adapters)
        self.changed()

    def changed(self) -> None:
        """The adapters have other values now."""
        with self.loaded():
            self.output = self._output()


class SlowAverage:
    """A model that follows the policy slowly: an average of all its weights, or of its adapters alone, with state.

    It is kept in float32: in half precision most of its steps would round to 0.
    """

    def __init__(self, policy: Policy, settings: AverageSettings) -> None:
        self.settings, self.steps = settings, 0
        self.own: Sequence[Tensor]
        if policy.adapters:
            adapters = FrozenAdapters(policy)
            adapters.adapters = [values.float() for values in adapters.adapters]
            self.own = adapters.adapters
            self.followed = [p for p in policy.module.parameters() if p.requires_grad]
            self.frozen: FrozenCopy | FrozenAdapters = adapters
        else:
            module = copy.deepcopy(policy.module).float()
            self.own, self.followed = list(module.parameters()), list(policy.module.parameters())
            self.frozen = FrozenCopy(Policy(module, policy.tokenizer), saved=True)

    def observe(self) -> dict[str, float]:
        """Follow the policy after a step. Returns how often it did, and how far it is now from the policy: the norm of
        their difference relative to that of the policy's weights."""
        self.steps += 1
        with torch.no_grad():
            if self.steps % self.settings.every == 0:
                for own, now in zip(self.own, self.followed, strict=True):
                    own.lerp_(now.to(own.dtype), 1 - self.settings.decay)
                self.frozen.changed()
            apart = sum(float((a - b).square().sum()) for a, b in zip(self.own, self.followed, strict=True))
            size = sum(float(now.float().square().sum()) for now in self.followed)
        return {"average/distance": (apart / size) ** 0.5, "average/updates": self.steps // self.settings.every}

    def loaded(self) -> AbstractContextManager[Policy]:
        return self.frozen.loaded()

    def head(self, hidden: Tensor) -> Tensor:
        return self.frozen.head(hidden)

    def state(self) -> Any:
        return {"steps": self.steps, "weights": self.frozen.state()}

    def load_state(self, state: Any) -> None:
        self.steps = state["steps"]
        self.frozen.load_state(state["weights"])


class Soup(FrozenCopy):
    """A reference whose weights are the average of several models'."""

    def __init__(self, policy: Policy, settings: ReferenceSettings) -> None:
        module = merged(policy.module) if policy.adapters else copy.deepcopy(policy.module)
        super().__init__(Policy(module, policy.tokenizer), saved=True)
        total = sum(one.share for one in settings.average)
        own = dict(module.named_parameters())
        mean = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in own.items()}
        for place, one in enumerate(settings.average):
            weights = own if one.file is None else self._read(place, one.file, policy, own)
            for name, weight in mean.items():
                weight.add_(weights[name].detach().float(), alpha=one.share / total)
        copy_values([mean[name] for name in own], list(own.values()))
        self.distance = distance(list(own.values()), list(_merged_parameters(policy)))
        """How far it is from the policy as the stage began, relative to the norm of the policy's weights."""

    def state(self) -> State | None:
        return {"weights": super().state(), "distance": self.distance}

    def load_state(self, state: State) -> None:
        super().load_state(state["weights"])
        self.distance = float(state["distance"])

    @staticmethod
    def _read(place: int, path: str, policy: Policy, own: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        key = f"reference.average.{place}"
        with errors_name(key, "model"):
            settings = TeacherSettings(path=path).model(policy.device.type)
            weights = dict(load_policy(settings, tokenizer=policy.tokenizer).module.named_parameters())
        _same_shapes(key, path, _shapes(weights), _shapes(own))
        return weights


def distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """Norm of the difference of two models' weights, relative to that of the second one's."""
    with torch.no_grad():
        apart = sum(float((one.float() - other.float()).square().sum()) for one, other in zip(a, b, strict=True))
        return (apart / sum(float(other.float().square().sum()) for other in b)) ** 0.5


def _merged_parameters(policy: Policy) -> Iterator[nn.Parameter]:
    return merged(policy.module).parameters() if policy.adapters else policy.module.parameters()


Shapes = Mapping[str, Sequence[int]]
"""Shape of each weight, by name."""


def _shapes(weights: Mapping[str, Tensor]) -> Shapes:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _same_shapes(key: str, path: str, its_own: Shapes, policys: Shapes) -> None:
    """Raise RecipeError where a model's weights cannot be averaged with the policy's."""
    if its_own == policys:
        return
    name = min(its_own.items() ^ policys.items())[0]
    found, wanted = (shapes.get(name, "none") for shapes in (its_own, policys))
    raise RecipeError(
        f"{key}: got {quoted(path)}, whose weight {quoted(name)} has shape {found}, the model's {wanted}; allowed: a "
        "model with the same configuration, such as another fine-tuning of it"
    )


@dataclass(frozen=True)
class FrozenSettings:
    """A stage's settings of the models that it reads and does not train; None where it has none.

    Attributes:
        teacher: the model to learn from.
        average: how the slow average follows the policy.
        reference: the models whose average the reference is; None: it is the policy as it is now.
    """

    teacher: TeacherSettings | None = None
    average: AverageSettings | None = None
    reference: ReferenceSettings | None = None


def freeze(policy: Policy, names: frozenset[FrozenName], of: FrozenSettings) -> dict[FrozenName, FrozenModel]:
    """Those of the reference, the teacher and the slow average that are among these names.

    Raises:
        ValueError: a teacher or an average is needed and there are no settings of one.
        RecipeError: a model cannot be loaded.
    """
    models: dict[FrozenName, FrozenModel] = {}
    if "reference" in names and of.reference is not None:
        models["reference"] = Soup(policy, of.reference)
    elif "reference" in names and policy.adapters:
        models["reference"] = FrozenAdapters(policy)
    elif "reference" in names:
        models["reference"] = FrozenCopy(Policy(copy.deepcopy(policy.module), policy.tokenizer), saved=True)
    if "teacher" in names:
        if of.teacher is None:
            raise ValueError("a teacher is needed, and the stage has no settings of one")
        models["teacher"] = FrozenCopy(load_teacher(of.teacher, policy), saved=False)
    if "average" in names:
        if of.average is None:
            raise ValueError("a slow average is needed, and the stage has no settings of one")
        models["average"] = SlowAverage(policy, of.average)
    return models


def load_teacher(teacher: TeacherSettings, policy: Policy) -> Policy:
    """A teacher on the policy's device, with the policy's own tokenizer.

    Raises:
        RecipeError: it cannot be loaded.
    """
    with errors_name("teacher", "model"):
        return load_policy(teacher.model(policy.device.type), tokenizer=policy.tokenizer)


def check_teacher(teacher: TeacherSettings, tokenizer: transformers.PreTrainedTokenizerBase) -> None:
    """Refuse a teacher that cannot be loaded, or whose tokens are others than the policy's, before a model is loaded.

    Args:
        tokenizer: the policy's.
    Raises:
        RecipeError: as above.
    """
    settings = teacher.model("cpu")
    with errors_name("teacher", "model"):
        its_own = read_tokenizer(settings).get_vocab()
        check_weights(settings)
    _same_tokens("teacher.path", teacher.path, its_own, tokenizer.get_vocab())


def check_reference(
    reference: ReferenceSettings, model: ModelSettings, tokenizer: transformers.PreTrainedTokenizerBase
) -> None:
    """Refuse a model that cannot be loaded, or not averaged with the policy, before a model is loaded.

    Args:
        model: the policy's.
    Raises:
        RecipeError: as above.
    """
    for place, one in enumerate(reference.average):
        if one.file is None:
            continue
        key, settings = f"reference.average.{place}", TeacherSettings(path=one.file).model("cpu")
        with errors_name(key, "model"):
            vocabulary = read_tokenizer(settings).get_vocab()
            check_weights(settings)
            shapes = weight_shapes(settings)
        _same_tokens(key, one.file, vocabulary, tokenizer.get_vocab())
        _same_shapes(key, one.file, shapes, weight_shapes(model))


def _same_tokens(key: str, path: str, its_own: Mapping[str, int], policys: Mapping[str, int]) -> None:
    if its_own != policys:
        token = min((its_own.items() ^ policys.items()), key=lambda item: (item[1], item[0]))[0]
        raise RecipeError(
            f"{key}: got {quoted(path)}, whose vocabulary is not the model's: {len(its_own)} tokens and "
            f"{len(policys)}, token {quoted(token)} is {its_own.get(token)} and {policys.get(token)}; "
            "allowed: a model with the same tokenizer"
        )


def copy_values(values: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    """Overwrite tensors in place, without gradient."""
    with torch.no_grad():
        for place, value in zip(into, values, strict=True):
            place.copy_(value)
