"""From texts that the policy finds easy to continue to those that it finds hard, by the entropy of its next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import BatchTokens, of_kind, slot
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import Around
from lyceum.models.packed_paths import packed
from lyceum.models.policy import Policy, token_outputs
from lyceum.utils.lazy_imports import torch


class ByEntropy(CurriculumSettings):
    """From a pool of drawn tasks, those of low entropy first, and of ever higher entropy from step to step.

    Source:
        RMT, arXiv:2509.24375, which samples easy tokens first by their entropy; the sliding window is ours.
    """

    gives: ClassVar = ("end",)
    kind: Literal["entropy"] = "entropy"
    pool: int = Field(4, ge=1, le=1000)
    """Tasks drawn per picked task; 1 picks all of them."""
    steps: int = Field(60, ge=1, le=10**9)
    """Steps after which the hardest of the pool are picked."""
    after: str = Field("", max_length=1000)
    """Text below the prompt in front of the token whose entropy counts: what ends a thought, for a model whose first
    token begins one."""
    micro_batch_tokens: BatchTokens = 8192
    """Prompt tokens per forward pass; affects memory, but not the result."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Curriculum that draws the pool."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        if policy is None:
            raise ValueError("the curriculum 'entropy' reads prompts with the policy; give it one")
        return ByEntropyCurriculum(self, self.draws.build(source, seed=seed, policy=policy), policy)


class ByEntropyCurriculum(Around):
    """Its state: the number of observed steps."""

    def __init__(self, settings: ByEntropy, inner: Curriculum, policy: Policy) -> None:
        super().__init__(inner)
        self.settings, self.policy = settings, policy
        self.steps = 0
        self.found: dict[str, list[float]] = {"pool": [], "picked": []}
        self._metrics: dict[str, float] = {}

    @property
    def done(self) -> str:
        steps = self.settings.steps
        return f"the hardest of a pool are drawn since step {steps + 1}" if self.steps > steps else ""

    def draw(self, n: int) -> list[Task]:
        pool = self.inner.draw(n * self.settings.pool)
        entropy = self.entropies(pool)
        picked = window(entropy, n, self.steps / self.settings.steps)
        self.found["pool"] += entropy
        self.found["picked"] += [entropy[i] for i in picked]
        return [pool[i] for i in picked]

    def entropies(self, tasks: Sequence[Task]) -> list[float]:
        """Of the token that the policy, as it is now, would write next: nats."""
        policy, paths = self.policy, list[list[int]]()
        for task in tasks:
            prompt = policy.render(task.messages)
            after = policy.renderer.within(prompt, self.settings.after) if self.settings.after else []
            paths.append([*prompt, *after])
        found: list[float] = []
        with torch.no_grad():
            for trie in packed(paths, self.settings.micro_batch_tokens):
                last = torch.tensor([row[-1] for row in trie.rows], device=policy.device)
                hidden = trie.hidden(policy.backbone, policy.device)[last]
                outputs = token_outputs(policy, hidden, torch.zeros_like(last), entropy=True)
                assert outputs.entropy is not None
                found += outputs.entropy.tolist()
        return found

    def observe(self, trees: Sequence[Tree]) -> None:
        self._metrics = {f"entropy/{name}": fmean(values) for name, values in self.found.items() if values}
        self.found = {name: [] for name in self.found}
        self.steps += 1
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        return {**self._metrics, **super().metrics()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps = int(state["steps"])


def window(entropy: Sequence[float], n: int, progress: float) -> list[int]:
    """Indices of n neighbours in the order of entropy, the lowest at progress 0, the highest from 1 on; ties go to the
    first. In increasing order."""
    order = sorted(range(len(entropy)), key=lambda i: entropy[i])
    first = round(min(1.0, progress) * max(0, len(order) - n))
    return sorted(order[first : first + n])
