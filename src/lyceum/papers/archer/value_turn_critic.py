"""ArCHer's critic: values of states and turns, learnt by temporal differences from a buffer, against a target copy."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

from jaxtyping import Bool, Float
from pydantic import Field

from lyceum.core.component import BatchTokens, require_keys
from lyceum.core.settings import ValueSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Judgement, MarkedPath
from lyceum.models.frozen import copy_values
from lyceum.models.packed_paths import packed
from lyceum.models.policy import Policy, redirect_attention
from lyceum.reward.model import turn_spans
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import F, Tensor, nn, torch
from lyceum.utils.numbers import mean
from lyceum.utils.seeds import counter_seed
from lyceum.value.model import copied, head_of

HEADS = {"q1": 2, "q2": 2, "v1": 1, "v2": 1}
"""Names of the heads, and how many hidden states each reads: a turn's value is of the state and the turn."""


class TurnCritic(ValueSettings):
    """Two Q-values of each turn and two values of the state before it; a turn's reward is its advantage.

        A(s, a) = min(Q1, Q2)(s, a) - min(V1, V2)(s)

    The body is a copy of the policy's, read at the last token before a turn and at the turn's last. It learns after
    each step from its buffer, by an optimiser of its own: Q towards r + gamma V of the next state, V towards Q, both of
    a target copy that follows it slowly. Reward ``model`` with ``cut: turns`` pays the advantages, and credit
    ``turn-advantage`` lays them on the turns' tokens.

    Source: ArCHer, arXiv:2402.19446; YifeiZhou02/ArCHer (``algorithms/archer/trainer.py``, ``models/critic.py``).
    """

    gives: ClassVar = ("judgements", "value-online")

    kind: Literal["turn-critic"] = "turn-critic"
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount per turn (no unit)."""
    tau: float = Field(default=0.1, gt=0, le=1)
    """Share of the way that the target copy goes towards the critic after each of its updates; 1: it is the critic."""
    lr: float = Field(default=2e-5, gt=0, le=1)
    """Learning rate of AdamW; 2e-5 in the authors' scripts."""
    updates: int = Field(default=20, ge=1)
    """Updates of the critic per step of the stage."""
    batch: int = Field(default=32, ge=1)
    """Trajectories per update, drawn from the buffer."""
    capacity: int = Field(default=1024, ge=1)
    """Trajectories in the buffer, the latest ones."""
    warm_up_steps: int = Field(default=0, ge=0)
    """Steps in which the critic alone learns: every advantage is 0 until then."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    micro_batch_tokens: BatchTokens = 8192
    """Unique tokens per forward pass; affects memory, but neither values nor gradients."""

    def build(self, policy: Policy, *, seed: int) -> TurnValues:
        return TurnValues(self, policy, seed=seed)


class MarkedTrajectory(NamedTuple):
    """A trajectory whose turns are marked, and its outcome."""

    path: MarkedPath
    outcome: float


class TurnValues:
    """The critic, its target copy, optimiser and buffer."""

    def __init__(self, settings: TurnCritic, policy: Policy, *, seed: int) -> None:
        self.settings, self.seed = settings, seed
        model = copied(policy)
        if policy.by_rows is None:
            redirect_attention(model)
        body, width = cast(nn.Module, getattr(model, model.base_model_prefix)), head_of(model).in_features
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(counter_seed("turn-critic", seed))
            heads = {name: head(of * width, width) for name, of in HEADS.items()}
        self.device = model.device
        self.critic = nn.ModuleDict({"body": body, **heads}).to(self.device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.parameters = list(self.critic.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=settings.lr, weight_decay=0.0)
        self.buffer: list[MarkedTrajectory] = []
        self.steps = self.updates = self.skipped = 0
        self.measured: dict[str, float] = {}

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        """V of the state in which each path ends, in 0 .. 1."""
        ends = [(tokens, len(tokens)) for tokens in (path.path_tokens() for path in paths)]
        asked = [MarkedPath(tokens, ends=[end], starts=[end]) for tokens, end in ends]
        with torch.no_grad():
            values = [value for part in self._read(self.critic, asked) for value in part[2:].amin(0).tolist()]
        return [min(1.0, max(0.0, value)) for value in values]

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        if any(len(path.starts) != len(path.ends) for path in paths):
            raise RecipeError("reward.cut: value.kind 'turn-critic' judges turns; allowed: 'turns'")
        if self.steps < self.settings.warm_up_steps:
            return [Judgement(0.0, [0.0] * len(path.ends)) for path in paths]
        with torch.no_grad():
            values = torch.cat(list(self._read(self.critic, paths)), dim=1)
        of_paths = (values[:2].amin(0) - values[2:].amin(0)).split([len(path.ends) for path in paths])
        return [Judgement(0.0, of_path.tolist()) for of_path in of_paths]

    def observe(self, trees: Sequence[Tree]) -> None:
        new = [
            played
            for tree in trees
            for leaf, _, outcome in tree.graded_with_outcome()
            if (played := marked_turns(leaf, outcome)).path.ends
        ]
        self.buffer = [*self.buffer, *new][-self.settings.capacity :]
        self.steps += 1
        if not self.buffer:
            self.measured = {"trajectories": 0.0}
            return
        losses = [self._update() for _ in range(self.settings.updates)]
        both = zip(self.parameters, self.target.parameters(), strict=True)
        behind = [float((own.detach() - target).abs().mean()) for own, target in both]
        self.measured = {
            "trajectories": float(len(self.buffer)),
            "turns": float(sum(len(played.path.ends) for played in self.buffer)),
            "updates": float(self.updates),
            "skipped": float(self.skipped),
            "loss/first": losses[0],
            "loss/last": losses[-1],
            "target/behind": mean(behind),
        }

    def metrics(self) -> dict[str, float]:
        """Of the step just observed: the buffer, the loss of its first and last update, and how far the target copy is
        behind (mean over the tensors of the mean absolute difference)."""
        return self.measured

    def _update(self) -> float:
        """One update on trajectories of the buffer, and the target copy's step after it; returns the loss."""
        draw = random.Random(counter_seed("turn-critic/batch", self.seed, self.updates))
        drawn = draw.sample(self.buffer, min(self.settings.batch, len(self.buffer)))
        batch = sorted(drawn, key=lambda played: tuple(played.path.tokens))  # those of one task share their prefixes
        paths = [played.path for played in batch]
        reward, last = at_the_end([len(path.ends) for path in paths], [played.outcome for played in batch])
        with torch.no_grad():
            ahead = torch.cat(list(self._read(self.target, paths)), dim=1)
        target = temporal_targets(ahead, reward.to(ahead), last.to(ahead.device), gamma=self.settings.gamma)
        self.optimizer.zero_grad(set_to_none=True)
        total, done = 0.0, 0
        for values in self._read(self.critic, paths):
            of_part = target[:, done : done + values.shape[1]]
            loss = F.mse_loss(values, of_part, reduction="sum") / target.shape[1]
            loss.backward()
            total, done = total + float(loss.detach()), done + values.shape[1]
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if math.isfinite(total) and bool(norm.isfinite()):
            self.optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(self.target.parameters(), self.parameters, strict=True):
                    slow.lerp_(fast, self.settings.tau)
        else:
            self.skipped += 1
        self.updates += 1
        return total

    def _read(self, modules: nn.ModuleDict, paths: Sequence[MarkedPath]) -> Iterator[Float[Tensor, "4 turn"]]:
        """For each micro-batch of paths, in order: Q1, Q2, V1 and V2 of all of their turns."""
        done = 0
        for trie in packed([path.tokens for path in paths], self.settings.micro_batch_tokens):
            asked = list(zip(trie.rows, paths[done : done + len(trie.rows)], strict=True))
            hidden = trie.hidden(modules["body"], self.device)
            before = [row[start - 1] for row, path in asked for start in path.starts]
            turn = [row[end - 1] for row, path in asked for end in path.ends]
            state = hidden[torch.tensor(before, device=self.device, dtype=torch.long)].float()
            both = torch.cat([state, hidden[torch.tensor(turn, device=self.device, dtype=torch.long)].float()], dim=1)
            yield torch.stack([modules[name](both if of == 2 else state).squeeze(1) for name, of in HEADS.items()])
            done += len(asked)

    def state_dict(self) -> dict[str, Any]:
        return {
            "critic": [p.detach() for p in self.parameters],
            "target": [p.detach() for p in self.target.parameters()],
            "optimizer": self.optimizer.state_dict(),
            "buffer": [[*map(list, (path.tokens, path.starts, path.ends)), outcome] for path, outcome in self.buffer],
            "counts": [self.steps, self.updates, self.skipped],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("value.turn-critic", given=state, needed=self.state_dict())
        copy_values(state["critic"], self.parameters)
        copy_values(state["target"], list(self.target.parameters()))
        self.optimizer.load_state_dict(dict(state["optimizer"]))
        self.buffer = [
            MarkedTrajectory(MarkedPath(tokens, ends=ends, starts=starts), outcome)
            for tokens, starts, ends, outcome in state["buffer"]
        ]
        self.steps, self.updates, self.skipped = state["counts"]


def head(inputs: int, width: int) -> nn.Sequential:
    """Two hidden layers, as the authors' critics have."""
    layers = (nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    return nn.Sequential(*layers)


def marked_turns(leaf: Node, outcome: float) -> MarkedTrajectory:
    own = turn_spans(leaf)
    path = MarkedPath(leaf.path_tokens(), len(leaf.root.tokens), [end for *_, end in own], [at for _, at, _ in own])
    return MarkedTrajectory(path, outcome)


def at_the_end(turns: Sequence[int], outcome: Sequence[float]) -> tuple[Float[Tensor, " turn"], Bool[Tensor, " turn"]]:
    """The reward of each turn, which is a trajectory's outcome at its last turn and 0 before, and which turns are last.

    Args:
        turns: number of each trajectory's turns, at least 1.
    """
    last = torch.tensor(list(turns)).cumsum(0) - 1
    reward = torch.zeros(sum(turns)).index_put((last,), torch.tensor(list(outcome)))
    return reward, torch.zeros(sum(turns), dtype=torch.bool).index_fill(0, last, True)


def temporal_targets(
    ahead: Float[Tensor, "4 turn"], reward: Float[Tensor, " turn"], last: Bool[Tensor, " turn"], *, gamma: float
) -> Float[Tensor, "4 turn"]:
    """What the critics learn, each from its own target copy.

        Q_i(s_t, a_t): r_t + gamma V'_i(s_{t+1}), V' = 0 after the last turn        V_i(s_t): Q'_i(s_t, a_t)

    Args:
        ahead: Q'1, Q'2, V'1 and V'2 of the target copy, for the turns of one trajectory after another.
        reward: r, in the verifier's unit.
        last: a trajectory's last turns.
        gamma: discount per turn.
    Source:
        ArCHer, arXiv:2402.19446 (the losses of Q and V); there V learns from the Q' of turns drawn anew.
    """
    after = ahead[2:].roll(-1, dims=1).masked_fill(last, 0)
    return torch.cat([reward + gamma * after, ahead[:2]])
