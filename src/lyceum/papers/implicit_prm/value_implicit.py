"""An implicit reward model: the log-ratio of two language models, trained on outcomes, is a reward of every token."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from jaxtyping import Float
from pydantic import Field

from lyceum.core.needs import Gives
from lyceum.core.settings import Composition, EnvironmentSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, Judgement, MarkedPath, Scored
from lyceum.models.frozen import TeacherSettings, copy_values, load_teacher
from lyceum.models.load import check_model, check_weights, merged, read_tokenizer, save_module
from lyceum.models.packed_paths import PackedPaths, packed, trie_logprobs
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import mean
from lyceum.utils.paths import local_path
from lyceum.value.measures import auc
from lyceum.value.training import Loss, TrainedPaths, TrainedValueSettings, not_handed_on

REFERENCE = "reference"
"""Folder, beside a saved model's files, of the model that it is compared with."""


class Implicit(TrainedValueSettings):
    """A language model whose log-ratio to a frozen one is the reward; a path's value is its sigmoid.

    Source: Implicit PRM, arXiv:2412.01981; trained online PRIME, arXiv:2502.01456, and its released code.
    """

    gives: ClassVar = (Gives("value-online", when=lambda own: own.online),)

    kind: Literal["implicit"] = "implicit"
    beta: float = Field(default=0.05, gt=0)
    """Reward per nat of the log-ratio; 0.05 in both papers' code."""
    loss: Loss = "bce"
    """Training loss of the log-ratio summed over a path: cross-entropy of its sigmoid on verdicts, or one of the
    others; ``pairwise`` is DPO's."""
    lr: float = Field(default=1e-6, gt=0, le=1e6)
    """Learning rate of AdamW; 1e-6 in PRIME's script."""
    epochs: int = Field(default=1, ge=1)
    """Epochs over the examples of a round or a step."""
    max_grad_norm: float = Field(default=10.0, gt=0)
    """Maximum gradient norm; 10 in PRIME's script."""
    online: bool = False
    """Learn, after each step of an online stage, from the verdicts of that step's trajectories."""

    def check(self, stage: Composition) -> list[str]:
        lines = [] if self.path is None else unusable(self.path)
        if self.from_stage is not None:
            lines += not_handed_on(self.from_stage, self.kind, stage.before)
        if self.online and stage.credit is None:
            lines.append("value.online: got true in a stage without credit, which trains it anyway; allowed: false")
        if self.online and self.loss == "pairwise":
            lines.append(
                "value.loss: got 'pairwise' with value.online, which learns from single verdicts; allowed: bce"
            )
        if stage.rollout is not None and any(
            isinstance(part, EnvironmentSettings) for part in stage.rollout.components()
        ):
            lines.append(
                f"rollout.kind: got '{stage.rollout.kind}', whose turns an environment answers, but value.kind "
                "'implicit' would reward its text too; allowed: another rollout, or value.kind 'model'"
            )
        return lines

    def build(self, policy: Policy, *, seed: int) -> ImplicitValues:
        return ImplicitValues(self, policy, seed=seed)


class ImplicitValues(TrainedPaths):
    """Both models. The reference's weights are in the state where a resumed run could not read them again."""

    def __init__(self, settings: Implicit, policy: Policy, *, seed: int) -> None:
        of_files = None if settings.path is None else local_path(settings.path) / REFERENCE
        self.model = _copy(policy) if settings.path is None else _loaded(settings.path, policy)
        self.read_again = of_files is not None and of_files.is_dir()
        self.reference = _loaded(str(of_files), policy) if self.read_again else _copy(policy)
        self.model.module.requires_grad_(True)
        self.reference.module.requires_grad_(False)
        super().__init__(settings, list(self.model.module.parameters()), seed=seed)
        self.settings, self.measured = settings, {}

    @property
    def device(self) -> torch.device:
        return self.model.device

    def path_logits(self, paths: Sequence[MarkedPath]) -> Iterator[Float[Tensor, " path"]]:
        for part in self._rewards(paths):
            yield torch.stack([rewards.sum() for rewards in part])

    def _rewards(self, paths: Sequence[MarkedPath]) -> Iterator[list[Float[Tensor, " token"]]]:
        """For each micro-batch of paths: the reward of each of their tokens below the prompt."""
        done = 0
        for trie in packed([path.tokens for path in paths], self.settings.micro_batch_tokens):
            asked = [below_prompt(path) for path in paths[done : done + len(trie.rows)]]
            yield self._of_trie(trie, asked)
            done += len(asked)

    def _of_trie(self, trie: PackedPaths, asked: Sequence[Scored]) -> list[Float[Tensor, " token"]]:
        with torch.no_grad():
            known = trie_logprobs(self.reference, trie, asked)
        found = trie_logprobs(self.model, trie, asked)
        lengths = [path.stop - path.start for path in asked]
        return list((self.settings.beta * (found - known)).split(lengths))

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        marked = [MarkedPath(path.path_tokens(), len(path.root.tokens)) for path in paths]
        with torch.no_grad():
            return [float(torch.sigmoid(z)) for part in self.path_logits(marked) for z in part]

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        with torch.no_grad():
            rewards = [rewards for part in self._rewards(paths) for rewards in part]
        return [step_rewards(of, path) for of, path in zip(rewards, paths, strict=True)]

    def observe(self, trees: Sequence[Tree]) -> None:
        groups = [of for tree in trees if (of := verdicts(tree))]
        examples = [example for group in groups for example in group]
        if not examples:
            self.measured = {"paths": 0.0}
            return
        with torch.no_grad():
            said = self.logits_of(examples).tolist()
        right = [(logit > 0) == (example.value > 0.5) for logit, example in zip(said, examples, strict=True)]
        of_group = iter(said)
        ranked = [auc([next(of_group) for _ in group], [one.value > 0.5 for one in group]) for group in groups]
        known = [share for share in ranked if share is not None]
        self.measured = {"accuracy": mean([float(one) for one in right])} | self.fit(examples)
        if known:
            self.measured["pairs/accuracy"] = mean(known)

    def metrics(self) -> dict[str, float]:
        """Of the step just observed, before it learnt from it: the share of trajectories whose reward's sign is their
        verdict's (``accuracy``), the share of right and wrong pairs of one task that it ranks (``pairs/accuracy``)."""
        return self.measured

    def save(self, folder: Path) -> None:
        """The model as a Hugging Face folder, its reference in ``reference/``."""
        _save(self.model, folder)
        _save(self.reference, folder / REFERENCE)

    def state_dict(self) -> dict[str, Any]:
        kept = None if self.read_again else [p.detach() for p in self.reference.module.parameters()]
        return super().state_dict() | {"reference": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if state["reference"] is not None:
            copy_values(state["reference"], list(self.reference.module.parameters()))


def below_prompt(path: MarkedPath) -> Scored:
    """The path's tokens below its prompt; nothing predicts the first of all."""
    return Scored(path.tokens, max(1, path.prompt), max(1, len(path.tokens)))


def step_rewards(reward: Float[Tensor, " token"], path: MarkedPath) -> Judgement:
    """The sum over the tokens of each step, which begins where the one before it ends, and over all tokens.

        r_k = sum over the tokens t of step k of beta log(pi_phi(y_t | y_<t) / pi_ref(y_t | y_<t))

    Args:
        reward: of each token below the prompt.
    Source:
        Implicit PRM, arXiv:2412.01981; PRIME, arXiv:2502.01456.
    """
    before = torch.cat([reward.new_zeros(1), reward.double().cumsum(0)])
    ends = torch.tensor([0, *(end - max(1, path.prompt) for end in path.ends)])
    sums = before[ends.clamp(min=0)].diff()
    return Judgement(float(before[-1]), sums.tolist())


def verdicts(tree: Tree) -> list[Example]:
    """The tree's graded trajectories that have a verdict, each worth it."""
    return [
        Example(leaf.path_tokens(), float(grade.verdict), len(leaf.root.tokens))
        for leaf, grade, _ in tree.graded_with_outcome()
        if grade.verdict is not None
    ]


def unusable(path: str) -> list[str]:
    """Errors in a folder that its files show without reading a weight."""
    settings = TeacherSettings(path=path).model("cpu")
    try:
        check_model(settings)
        if local_path(path).exists():
            check_weights(settings)
    except RecipeError as error:
        return [re.sub(r"^model\b", "value", line) for line in error.lines]
    return []


def _copy(policy: Policy) -> Policy:
    """The policy as it is now, adapters merged."""
    module = merged(policy.module) if policy.adapters else copy.deepcopy(policy.module)
    return Policy(module, policy.tokenizer)


def _loaded(path: str, policy: Policy) -> Policy:
    """A language model that reads the policy's own tokens.

    Raises:
        RecipeError: it cannot be loaded, or has another vocabulary.
    """
    settings = TeacherSettings(path=path)
    try:
        vocabulary = read_tokenizer(settings.model("cpu")).get_vocab()
        loaded = load_teacher(settings, policy)
    except RecipeError as error:
        raise RecipeError([re.sub(r"^(model|teacher)\b", "value", line) for line in error.lines]) from error
    if vocabulary != policy.tokenizer.get_vocab():
        raise RecipeError(
            f"value.path: the tokenizer of {path} is not the policy's, whose tokens it would read; allowed: a model "
            "trained with the policy's vocabulary, such as the value/ that a run of this policy left"
        )
    return loaded


def _save(policy: Policy, folder: Path) -> None:
    save_module(cast(Any, policy.module), policy.tokenizer, folder)
