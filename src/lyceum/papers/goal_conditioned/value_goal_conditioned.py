"""A reward model whose hidden states are drawn to those ahead on preferred trajectories: their cosine is a Q-value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.settings import Composition
from lyceum.core.tree import Node
from lyceum.core.types import Example, Judgement, MarkedPath
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import F, Tensor, torch
from lyceum.utils.numbers import mean
from lyceum.utils.paths import local_path
from lyceum.utils.seeds import counter_seed
from lyceum.value.model import Classifier, ClassifierSettings
from lyceum.value.training import Loss, pair_loss

GOAL = "goal.safetensors"
"""File of the goal state, beside a saved model's own."""


class GoalConditioned(ClassifierSettings):
    """A token classifier that learns from pairs, by Bradley-Terry's loss and by a contrastive one of hidden states.

    As a reward its outcome is the head's logit at the path's end; the reward of a step, and a path's value for
    searches, are the Q-value of its last hidden state: the cosine of it and the goal state, which is the mean last
    hidden state of preferred trajectories (those of the last round).

    Source: Learning Goal-Conditioned Representations for Language Reward Models, arXiv:2407.13887, and its released
    code (openrlhf/models/loss.py, examples/get_representation.py, examples/eval_rm.py).
    """

    kind: Literal["goal-conditioned"] = "goal-conditioned"
    loss: Loss = "pairwise"
    """Bradley-Terry on pairs, for ``labels: pairs``; no other one, as the contrastive loss needs both paths."""
    contrast: float = Field(default=0.5, ge=0)
    """Weight of the contrastive loss beside that of the pair's scores; 0.5 in the code."""
    states: int = Field(default=16, ge=1)
    """Source states, and goal states, drawn from each trajectory of a pair for the contrastive loss; 16 in the code."""

    @model_validator(mode="after")
    def _of_pairs(self) -> Self:
        if self.loss != "pairwise":
            raise ValueError(f"loss: got {self.loss!r}, but states of two paths are contrasted; allowed: 'pairwise'")
        return self

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.path is not None and not lines and not (local_path(self.path) / GOAL).is_file():
            lines.append(
                f"value.path: {self.path} has no {GOAL}; allowed: the folder value/ that a stage left whose value.kind "
                "was 'goal-conditioned'"
            )
        return lines

    def build(self, policy: Policy, *, seed: int) -> GoalValues:
        return GoalValues(self, policy, seed=seed)


class GoalValues(Classifier):
    """The classifier, and its goal state: 0, and so every Q-value, until it has learnt."""

    def __init__(self, settings: GoalConditioned, policy: Policy, *, seed: int) -> None:
        super().__init__(settings, policy, seed=seed)
        self.settings = settings
        width = self.head.in_features
        self.goal = torch.zeros(width) if settings.path is None else _loaded(settings.path, width)
        self.cosines: list[tuple[float, float]] = []

    def path_logits(self, paths: Sequence[MarkedPath]) -> Iterator[Float[Tensor, " path"]]:
        ends = [[len(path.tokens) - 1] for path in paths]
        for states, _ in self.states([path.tokens for path in paths], ends):
            yield self.logit(states)

    def fit(self, examples: Sequence[Example]) -> dict[str, float]:
        """Learn from pairs, then take the goal state of their better paths."""
        self.cosines = []
        metrics = super().fit(examples)
        if examples:
            better = [example.tokens for example in examples[::2]]
            self.goal = torch.cat(self._read(better, [[len(tokens) - 1] for tokens in better])).mean(0).cpu()
        if self.cosines:
            ahead, away = zip(*self.cosines, strict=True)
            metrics |= {"cosine/ahead": mean(ahead), "cosine/dispreferred": mean(away)}
        return metrics

    def _back_in_pairs(self, paths: Sequence[MarkedPath], order: Sequence[int]) -> float:
        """The gradient of the mean of both losses; a pass before finds d loss / d state, as paths of a pair may be in
        different micro-batches."""
        row = torch.tensor(order).argsort().tolist()  # of each pair's paths, the better and the worse in turn
        places = self._places(paths, row)
        tokens = [path.tokens for path in paths]
        states = [of_path.requires_grad_() for of_path in self._read(tokens, places)]
        better, worse = (torch.stack([states[i] for i in row[side::2]]) for side in (0, 1))
        loss = pair_loss(self.logit(better[:, 0]), self.logit(worse[:, 0])).mean()
        if self.settings.contrast:
            source, ahead, other = better[:, 1:].chunk(3, dim=1)
            near, far = cosines(source, ahead), cosines(other, worse[:, 1:])
            loss = loss + self.settings.contrast * contrastive_loss(near, far).mean()
            self.cosines.append((float(near.detach().mean()), float(far.detach().mean())))
        loss.backward()  # also the head's gradient
        slopes = torch.cat([torch.zeros_like(of_path) if of_path.grad is None else of_path.grad for of_path in states])
        done = 0
        for part, _ in self.states(tokens, places):
            (part * slopes[done : done + len(part)]).sum().backward()
            done += len(part)
        return float(loss.detach())

    def _places(self, paths: Sequence[MarkedPath], row: Sequence[int]) -> list[list[int]]:
        """The tokens at which the states of each path are read, all drawn from the completion.

        Every path's last token. With ``contrast`` also, of the better path of a pair: sources, then as many goals, each
        at or after its source, then the sources that are compared with the worse path's goals; of the worse path: its
        goals.

        Args:
            row: of :meth:`_back_in_pairs`.
        """
        n = self.settings.states if self.settings.contrast else 0
        generator = torch.Generator().manual_seed(counter_seed("contrast", self.seed, self.updates))
        drawn = torch.rand(len(row) // 2, 4, n, generator=generator)
        drawn[:, :2] = drawn[:, :2].sort(dim=1).values  # a goal is not before its source
        places: list[list[int]] = [[] for _ in paths]
        for i, at in enumerate(row):
            last = len(paths[at].tokens) - 1
            first = min(paths[at].prompt, last)
            share = drawn[i // 2, 3] if i % 2 else drawn[i // 2, :3].flatten()
            places[at] = [last, *(first + (share * (last - first + 1)).long()).clamp(max=last).tolist()]
        return places

    def _read(self, paths: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> list[Float[Tensor, "place w"]]:
        """Each path's states, without gradient."""
        with torch.no_grad():
            return [one for states, counts in self.states(paths, places) for one in states.split(counts)]

    def q_values(self, states: Float[Tensor, "place width"]) -> Float[Tensor, " place"]:
        """cos(h, goal), in -1 .. 1."""
        return F.cosine_similarity(states.float(), self.goal.to(states.device, torch.float), dim=-1)

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        """The sigmoid of each path's Q-value, as in the contrastive loss: 0.27 to 0.73, 0.5 for a cosine of 0."""
        tokens = [path.path_tokens() for path in paths]
        return [float(self.q_values(s).sigmoid()) for s in self._read(tokens, [[len(of) - 1] for of in tokens])]

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        """The score of the whole path, and the Q-value at the end of each step."""
        places = [[*(end - 1 for end in path.ends), len(path.tokens) - 1] for path in paths]
        with torch.no_grad():
            return [
                Judgement(float(self.logit(states[-1:])), self.q_values(states[:-1]).tolist())
                for states in self._read([path.tokens for path in paths], places)
            ]

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        super().save(folder)
        save_file({"goal": self.goal.float().contiguous()}, folder / GOAL)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"goal": self.goal}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.goal = state["goal"]


def cosines(source: Float[Tensor, "p s w"], goal: Float[Tensor, "p g w"]) -> Float[Tensor, "p s g"]:
    """Of every source state and every goal state of a pair."""
    return F.cosine_similarity(source.float().unsqueeze(2), goal.float().unsqueeze(1), dim=-1)


def contrastive_loss(near: Float[Tensor, "p s g"], far: Float[Tensor, "p s g"]) -> Float[Tensor, " p"]:
    """-ln(mean_sg sigmoid(near)) - ln(1 - mean_sg sigmoid(far)), in nats.

    Args:
        near: cosines of states of a preferred trajectory and of states ahead of them.
        far: cosines of states of a preferred trajectory and of states of the dispreferred one.
    Returns:
        Of each pair; 1.386 (2 ln 2) where all cosines are 0, at least 0.627.
    Source:
        The released code of arXiv:2407.13887, openrlhf/models/loss.py (ContrastiveGoalLoss).
    """
    return -near.sigmoid().mean((1, 2)).log() - (1 - far.sigmoid().mean((1, 2))).log()


def _loaded(path: str, width: int) -> Float[Tensor, " width"]:
    """A saved goal state.

    Raises:
        RecipeError: it cannot be read, or is another model's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        goal = load_file(local_path(path) / GOAL)["goal"]
    except (OSError, SafetensorError, KeyError) as error:
        raise RecipeError(f"value.path: {path}/{GOAL} cannot be read: {error}") from error
    if goal.shape != (width,) or not bool(goal.isfinite().all()):
        raise RecipeError(f"value.path: {path}/{GOAL} is not a goal state of a model {width} wide")
    return goal
