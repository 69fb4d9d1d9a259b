"""Many paths through one transformer at once: shared prefixes are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int

from lyceum.core.pictures import FIRST
from lyceum.core.types import Scored
from lyceum.models.policy import Policy, token_outputs
from lyceum.models.sight import Sight
from lyceum.models.tree_attention import TreePlan, packed_hidden
from lyceum.utils.lazy_imports import Tensor, nn, torch

Path = Sequence[int]
"""Token ids, starting at the prompt's first token."""


@dataclass
class PackedPaths:
    """A trie of paths: unique tokens, and the index of each path's tokens among them."""

    token: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    """Number of tokens that each row shares with earlier rows."""
    _below: dict[tuple[int, int], int] = field(default_factory=dict)

    def new_tokens(self, path: Path) -> int:
        """Tokens that adding a path would add."""
        above = -1
        for place, token in enumerate(path):
            found = self._below.get((above, token))
            if found is None:
                return len(path) - place
            above = found
        return 0

    def add(self, path: Path) -> None:
        self.shared.append(len(path) - self.new_tokens(path))
        row: list[int] = []
        above = -1
        for token in path:
            found = self._below.get((above, token))
            if found is None:
                found = self._below[above, token] = len(self.token)
                self.token.append(token)
                self.position.append(len(row))
            row.append(found)
            above = found
        self.rows.append(row)

    def hidden(self, body: nn.Module | Sight, device: torch.device) -> Float[Tensor, "T width"]:
        """Last hidden state of each unique token."""
        plan = TreePlan([torch.tensor(row) for row in self.rows], self.shared).to(device)
        token, position = torch.tensor(self.token, device=device), torch.tensor(self.position, device=device)
        seen: dict[str, Any] = {"shift": self._shift(body, device)} if isinstance(body, Sight) else {}
        return packed_hidden(body, token, position, plan, **seen)

    def _shift(self, sight: Sight, device: torch.device) -> Int[Tensor, " T"]:
        """Of each unique token, for a model that sees."""
        shift = torch.zeros(len(self.token), dtype=torch.long)
        for row in self.rows:
            shift[row] = torch.tensor(sight.shifts([self.token[at] for at in row]))
        return shift.to(device)


def path_logprobs(policy: Policy, paths: Sequence[Scored], tokens: int) -> list[list[float]]:
    """Log-probabilities (nats, temperature 1) of each path's tokens ``start`` to ``stop``, without gradient.

    Args:
        tokens: maximum unique tokens per forward pass.
    """
    found: list[list[float]] = []
    for trie in packed([path.tokens[: path.stop] for path in paths], tokens):
        asked = paths[len(found) : len(found) + len(trie.rows)]
        with torch.no_grad():
            logprob = trie_logprobs(policy, trie, asked).cpu()
        found += [part.tolist() for part in logprob.split([path.stop - path.start for path in asked])]
    return found


def trie_logprobs(policy: Policy, trie: PackedPaths, paths: Sequence[Scored]) -> Float[Tensor, " k"]:
    """Log-probabilities (nats, temperature 1) of the paths' tokens ``start`` to ``stop``, one path after another.

    Args:
        paths: the rows of the trie.
    """
    where = [row[path.start - 1 : path.stop - 1] for row, path in zip(trie.rows, paths, strict=True)]
    before = torch.tensor([at for of_path in where for at in of_path], dtype=torch.long, device=policy.device)
    token = torch.tensor([t for path in paths for t in path.tokens[path.start : path.stop]], device=policy.device)
    return logprob_of(policy, trie.hidden(policy.backbone, policy.device)[before], token.long())


def logprob_of(policy: Policy, before: Float[Tensor, "k width"], token: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Log-probability (nats, temperature 1) of each token from the hidden state before it; 0 of a picture's, which no
    model predicts."""
    if policy.sight is None:
        return token_outputs(policy, before, token).logprob
    seen = token >= FIRST
    return token_outputs(policy, before, token.masked_fill(seen, 0)).logprob.masked_fill(seen, 0.0)


def packed(paths: Sequence[Path], tokens: int) -> Iterator[PackedPaths]:
    """The paths in order, in tries of at most ``tokens`` unique tokens (or of one longer path)."""
    trie = PackedPaths()
    for path in paths:
        if trie.rows and len(trie.token) + trie.new_tokens(path) > tokens:
            yield trie
            trie = PackedPaths()
        trie.add(path)
    if trie.rows:
        yield trie
