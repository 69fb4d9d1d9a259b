"""PCL, prompt curriculum learning: a value model scores many prompts and picks those that are about half solved."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from statistics import fmean
from typing import Annotated, Any, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import BatchTokens, of_kind, require_keys, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import Around, success
from lyceum.models.packed_paths import PackedPaths, packed
from lyceum.models.policy import Policy
from lyceum.utils.lazy_imports import Tensor, nn, torch
from lyceum.value.targets import explained_variance


class PromptValue(CurriculumSettings):
    """From a pool of drawn tasks, those whose predicted success rate is nearest to a target."""

    kind: Literal["prompt-value"] = "prompt-value"
    target: float = Field(0.5, ge=0, le=1)
    """Target success rate, as predicted (no unit)."""
    pool: int = Field(4, ge=1)
    """Tasks drawn per picked task; 1 picks all of them."""
    body: Literal["own", "policy"] = "own"
    """Body of the value model: a copy of the policy that is trained along, or the current policy, with only a head
    to train: no further model in memory, but its features change during training."""
    lr: float = Field(1e-6, gt=0)
    """Learning rate of AdamW."""
    epochs: int = Field(1, ge=1)
    """Updates of the value model on each step's groups."""
    micro_batch_tokens: BatchTokens = 8192
    """Prompt tokens per forward pass; affects memory, but not the result."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Curriculum that draws the pool."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        if policy is None:
            raise ValueError("the curriculum 'prompt-value' reads prompts with the policy; give it one")
        return PromptValueCurriculum(self, self.draws.build(source, seed=seed, policy=policy), policy)


class PromptValueCurriculum(Around):
    """Its state: the value model and its optimiser. Predictions live from a step's draw to its outcomes."""

    def __init__(self, settings: PromptValue, inner: Curriculum, policy: Policy) -> None:
        super().__init__(inner)
        self.settings = settings
        self.model = PromptValueModel(policy, own=settings.body == "own", lr=settings.lr, start=settings.target)
        self.predicted: dict[str, float] = {}
        self.pool_values: list[float] = []
        self._metrics: dict[str, float] = {}

    def draw(self, n: int) -> list[Task]:
        pool = self.inner.draw(n * self.settings.pool)
        values = self.model.values([task.messages for task in pool], self.settings.micro_batch_tokens)
        picked = nearest_to(self.settings.target, values, n)
        self.pool_values += values
        self.predicted |= {pool[i].id: values[i] for i in picked}
        return [pool[i] for i in picked]

    def observe(self, trees: Sequence[Tree]) -> None:
        known = [(tree, rate) for tree in trees if (rate := success(tree)) is not None]
        self._metrics = self._compare(known)
        self.pool_values, self.predicted = [], {}
        if known:
            prompts, targets = [tree.task.messages for tree, _ in known], [rate for _, rate in known]
            for _ in range(self.settings.epochs):
                self.model.regress(prompts, targets, self.settings.micro_batch_tokens)
        super().observe(trees)

    def _compare(self, known: Sequence[tuple[Tree, float]]) -> dict[str, float]:
        pairs = [(self.predicted[tree.task.id], rate) for tree, rate in known if tree.task.id in self.predicted]
        if not pairs:
            return {}
        metrics = {
            "value/pool": fmean(self.pool_values),
            "value/picked": fmean(value for value, _ in pairs),
            "solved/picked": fmean(rate for _, rate in pairs),
        }
        explained = explained_variance([value for value, _ in pairs], [rate for _, rate in pairs])
        return metrics | ({} if explained is None else {"explained-variance/picked": explained})

    def metrics(self) -> dict[str, float]:
        return {**self._metrics, **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "model": self.model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.model.load_state_dict(state["model"])


class PromptValueModel:
    """V(prompt): a linear head on the last prompt token's hidden state, and the optimiser that trains it.

    Args:
        policy: its body is copied (``own``), or used in its current state at each call.
        own: train a separate body along with the head.
        lr: learning rate of AdamW.
        start: V of every prompt before training.
    """

    def __init__(self, policy: Policy, *, own: bool, lr: float, start: float) -> None:
        self.own = own
        self.reader = Policy(copy.deepcopy(policy.module), policy.tokenizer) if own else policy
        self.head = nn.Linear(policy.output.weight.shape[1], 1, device=policy.device)
        # Zero: no random initial weights that need a seed, and the same prediction for every prompt.
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, start)
        body = [p for p in self.reader.backbone.parameters() if p.requires_grad] if own else []
        self.parameters = [*body, *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, weight_decay=0.0)

    def values(self, prompts: Sequence[Sequence[Any]], tokens: int) -> list[float]:
        """V of each prompt, given as chat messages; ``tokens`` are forwarded at once."""
        rendered = [self.reader.render(messages) for messages in prompts]
        with torch.no_grad():
            return [value for trie in packed(rendered, tokens) for value in self._forward(trie).tolist()]

    def regress(self, prompts: Sequence[Sequence[Any]], targets: Sequence[float], tokens: int) -> None:
        """One update of mean_i (V(x_i) - target_i)^2."""
        rendered = [self.reader.render(messages) for messages in prompts]
        self.optimizer.zero_grad(set_to_none=True)
        done = 0
        for trie in packed(rendered, tokens):
            target = torch.tensor(targets[done : done + len(trie.rows)], device=self.head.weight.device)
            loss = (self._forward(trie) - target).square().sum() / len(rendered)
            loss.backward()
            done += len(trie.rows)
        self.optimizer.step()

    def _forward(self, prompts: PackedPaths) -> Float[Tensor, " prompt"]:
        with nullcontext() if self.own else torch.no_grad():
            hidden = prompts.hidden(self.reader.backbone, self.reader.device)
        last = torch.tensor([row[-1] for row in prompts.rows], device=hidden.device)
        return self.head(hidden[last].to(self.head.weight.dtype)).squeeze(-1)

    def state_dict(self) -> dict[str, Any]:
        return {"parameters": [p.detach() for p in self.parameters], "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.prompt-value", given=state, needed=("parameters", "optimizer"))
        if len(state["parameters"]) != len(self.parameters):
            raise ValueError(
                f"curriculum.prompt-value: {len(state['parameters'])} tensors saved, {len(self.parameters)} are trained"
            )
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(dict(state["optimizer"]))


def nearest_to(target: float, values: Sequence[float], n: int) -> list[int]:
    """Indices of the n values nearest to a target, in increasing order; ties go to the first.

        argmin over S, |S| = n, of  sum_{x in S} |V(x) - target|

    Source:
        Prompt Curriculum Learning, arXiv:2510.01135, equation 1.
    """
    return sorted(sorted(range(len(values)), key=lambda i: abs(values[i] - target))[:n])
