"""How value models learn: one logit for each path, a loss of logits and targets, AdamW."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.component import BatchTokens, PathText, require_keys
from lyceum.core.settings import Left, ValueSettings
from lyceum.core.types import Example, MarkedPath
from lyceum.utils.errors import Diverged, nearest
from lyceum.utils.lazy_imports import Tensor, nn, torch
from lyceum.utils.seeds import counter_seed
from lyceum.utils.terminal import quoted
from lyceum.value.targets import explained_variance

Loss = Literal["mse", "bce", "sum", "pairwise"]


class TrainedValueSettings(ValueSettings):
    """Settings of value models that are trained here."""

    gives: ClassVar = ("value-training", "judgements")

    path: PathText | None = None
    """Folder or hub name of a model; null begins with the policy's weights."""
    from_stage: str | None = None
    """Name of an earlier stage of the run, whose value model is taken over instead of one from ``path``."""
    loss: Loss = "mse"
    """Training loss: squared error of the sigmoid (the papers' choice for searches), cross-entropy (``bce``), squared
    error of the sum of the logits at the ends of a path's steps (``sum``, for ``labels: progress``), or Bradley-Terry
    on pairs (``pairwise``, for ``labels: pairs``). It also says how logits are read as rewards: by their sigmoid with
    the first two, as they are with the others."""
    lr: float = Field(default=3e-6, gt=0, le=1e6)
    """Learning rate of AdamW; 3e-6 in the code of ReST-MCTS*."""
    epochs: int = Field(default=2, ge=1)
    """Epochs over the examples of a round."""
    batch: int = Field(default=64, ge=1)
    """Paths per update, or pairs."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    micro_batch_tokens: BatchTokens = 8192
    """Unique tokens per forward pass; affects memory, but neither values nor gradients."""

    @model_validator(mode="after")
    def _of_one_origin(self) -> Self:
        if self.path is not None and self.from_stage is not None:
            raise ValueError(
                f"from_stage: got {quoted(self.from_stage)} with path {quoted(self.path)}; allowed: one of them"
            )
        return self

    @property
    def untrained(self) -> bool:
        return self.path is None and self.from_stage is None

    def handed_on(self, left_by: Callable[[str], Path]) -> Self:
        if self.from_stage is None:
            return self
        return self.model_copy(update={"path": str(left_by(self.from_stage)), "from_stage": None})


class TrainedPaths:
    """A value model's training, and its state: weights, optimiser, and how often it was updated.

    Args:
        parameters: those that are trained.
    """

    def __init__(self, settings: TrainedValueSettings, parameters: Sequence[nn.Parameter], *, seed: int) -> None:
        self.settings, self.parameters, self.seed = settings, list(parameters), seed
        self.optimizer = torch.optim.AdamW(self.parameters, lr=settings.lr, weight_decay=0.0)
        self.updates = self.skipped = 0

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def path_logits(self, paths: Sequence[MarkedPath]) -> Iterator[Float[Tensor, " path"]]:
        """For each micro-batch of paths, in order: their logits, with gradient where that is enabled."""
        ...

    def fit(self, examples: Sequence[Example]) -> dict[str, float]:
        """Learn the values of paths.

        Args:
            examples: with ``pairwise`` the better and the worse path of each pair, in turn.
        """
        paired = self._paired(examples)
        if not examples:
            return {"paths": 0.0}
        metrics = {"paths": float(len(examples))} | ({} if paired else self._foreseen(examples))
        each = 2 if paired else 1
        units = [examples[i : i + each] for i in range(0, len(examples), each)]
        losses: list[float] = []
        for epoch in range(self.settings.epochs):
            of_epoch = 0.0
            order = self._order(len(units), epoch)
            for start in range(0, len(order), self.settings.batch):
                chosen = order[start : start + self.settings.batch]
                of_epoch += self._update([one for i in chosen for one in units[i]]) * len(chosen) / len(order)
            losses.append(of_epoch)
        metrics |= {"updates": float(self.updates), "skipped": float(self.skipped)}
        return metrics | {"loss/first": losses[0], "loss/last": losses[-1]}

    def _paired(self, examples: Sequence[Example]) -> bool:
        """Whether the examples are pairs. Refuses targets that the loss cannot learn."""
        paired = self.settings.loss == "pairwise"
        if paired and len(examples) % 2:
            raise ValueError(f"got {len(examples)} paths for the loss 'pairwise'; allowed: an even number")
        for example in examples:
            inside = 0 <= example.value <= 1 if self.settings.loss in ("mse", "bce") else math.isfinite(example.value)
            if not paired and not inside:
                raise ValueError(f"a path's value is {example.value}; allowed: 0 to 1")
        return paired

    def losses(self, examples: Sequence[Example]) -> list[float]:
        paired = self._paired(examples)
        with torch.no_grad():
            logits = self.logits_of(examples)
            if paired:
                return pair_loss(logits[::2], logits[1::2]).tolist()
            target = torch.tensor([float(example.value) for example in examples], device=logits.device)
            return path_loss(logits, target, self.settings.loss).tolist()

    def logits_of(self, examples: Sequence[Example]) -> Float[Tensor, " path"]:
        """One logit for each path."""
        parts = list(self.path_logits([marked(example) for example in examples]))
        return torch.cat(parts) if parts else torch.zeros(0)

    def _foreseen(self, examples: Sequence[Example]) -> dict[str, float]:
        """Explained variance of the paths' values by predictions made before training on them."""
        with torch.no_grad():
            logits = self.logits_of(examples)
        said = logits if self.settings.loss == "sum" else [torch.sigmoid(logit) for logit in logits]
        explained = explained_variance(list(map(float, said)), [example.value for example in examples])
        return {} if explained is None else {"explained-variance": explained}

    def _order(self, n: int, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed(counter_seed("value", self.seed, self.updates, epoch))
        return torch.randperm(n, generator=generator).tolist()

    def _update(self, batch: Sequence[Example]) -> float:
        # Sorted, so that paths of one tree are adjacent and share their prefixes.
        order = sorted(range(len(batch)), key=lambda i: tuple(batch[i].tokens))
        paths = [marked(batch[i]) for i in order]
        self.optimizer.zero_grad(set_to_none=True)
        paired = self.settings.loss == "pairwise"
        total = self._back_in_pairs(paths, order) if paired else self._back(paths, [batch[i].value for i in order])
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if math.isfinite(total) and bool(norm.isfinite()):
            self.optimizer.step()
            if not nn.utils.get_total_norm(self.parameters, norm_type=math.inf).isfinite():
                raise Diverged(f"the value model diverged at its update {self.updates + 1}; lower value.lr")
        else:
            self.skipped += 1
        self.updates += 1
        return total

    def _back(self, paths: Sequence[MarkedPath], values: Sequence[float]) -> float:
        """The gradient of the mean loss, one micro-batch at a time; returns that loss."""
        target = torch.tensor(list(map(float, values)), device=self.device)
        total, done = 0.0, 0
        for logits in self.path_logits(paths):
            of_part = target[done : done + len(logits)]
            loss = path_loss(logits, of_part, self.settings.loss).sum() / len(paths)
            loss.backward()
            total, done = total + float(loss.detach()), done + len(logits)
        return total

    def _back_in_pairs(self, paths: Sequence[MarkedPath], order: Sequence[int]) -> float:
        """The same for pairs, whose paths may be in different micro-batches: a pass before finds d loss / d logit.

        Args:
            order: the place of each path among the pairs' paths.
        """
        with torch.no_grad():
            logits = torch.cat(list(self.path_logits(paths)))
        logits.requires_grad_()
        place = torch.tensor(order, device=logits.device).argsort()
        loss = pair_loss(logits[place[::2]], logits[place[1::2]]).mean()
        (slope,) = torch.autograd.grad(loss, logits)
        done = 0
        for part in self.path_logits(paths):
            (part * slope[done : done + len(part)]).sum().backward()
            done += len(part)
        return float(loss.detach())

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys(f"value.{self.settings.kind}", given=state, needed=self.state_dict())
        saved, own = len(state["parameters"]), len(self.parameters)
        if saved != own:
            raise ValueError(f"value.{self.settings.kind}: {saved} tensors saved, {own} are here")
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(dict(state["optimizer"]))
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])


def marked(example: Example) -> MarkedPath:
    return MarkedPath(example.tokens, example.prompt, example.ends)


def path_loss(logits: Float[Tensor, " p"], target: Float[Tensor, " p"], loss: Loss) -> Float[Tensor, " p"]:
    """(sigmoid(z) - t)^2, -t ln sigmoid(z) - (1 - t) ln(1 - sigmoid(z)) in nats, or (z - t)^2.

    Args:
        target: t, in 0 .. 1; with ``sum`` in the outcome's unit.
    Source:
        ReST-MCTS*, arXiv:2406.03816, section 3.3 (squared error); SPA-RL, arXiv:2505.20732 (the sum's squared error).
    """
    match loss:
        case "mse":
            return (torch.sigmoid(logits) - target).square()
        case "sum":
            return (logits - target).square()
        case _:
            return nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")


def pair_loss(better: Float[Tensor, " p"], worse: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """-ln sigmoid(z_better - z_worse), in nats: Bradley-Terry."""
    return -nn.functional.logsigmoid(better - worse)


def not_handed_on(name: str, kind: str, before: Mapping[str, Mapping[Left, str]]) -> list[str]:
    """Why no stage of that name hands on a value model of this kind; none where one does.

    Args:
        before: the stages that end before, by name: what each leaves, and the kind of a value model.
    """
    kinds = {stage: left["value"] for stage, left in before.items() if "value" in left}
    if kinds.get(name) == kind:
        return []
    able = [stage for stage, of_stage in kinds.items() if of_stage == kind]
    why = "which is no stage before this one"
    if name in before:
        why = f"whose value model is of kind {kinds[name]!r}" if name in kinds else "a stage that trains no value model"
    of_kind = "" if not kinds or able else f" of kind {kind!r}"
    known = ", ".join(able) or f"null, as no stage before this one trains a value model{of_kind}"
    return [f"value.from_stage: got {quoted(name)}{nearest(name, able)}, {why}; allowed: {known}"]
