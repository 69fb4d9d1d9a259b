"""What a learner does with a mixture of experts: choices that the engine recorded, and a loss that evens out the load.

Every row counts, prompts included, as if each were forwarded alone: a token that several rows share counts for each of
them, in both layouts. And the load is that of a whole update: its micro-batches add up to it, however it is split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int

from lyceum.core.forest import EXPERTS, Forest
from lyceum.learner._forward import Layout
from lyceum.models.routers import OWN, Chosen, Routers, Routing
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch


def load_balancing(load: Float[Tensor, " E"], probability: Float[Tensor, " E"]) -> Float[Tensor, ""]:
    """How uneven the load of experts is: the number k that each token goes to where it is even, more where it is not.

        loss = E * sum_e f_e P_e        gradients through P alone

    Args:
        load: f, tokens that went to each expert, as a share of all; adds up to k.
        probability: P, mean over all tokens of each expert's probability by the router's softmax.
    Source:
        Switch Transformers, arXiv:2101.03961, equations 4-6; tokens of all layers together, as transformers has it.
    """
    return len(load) * (load.detach() * probability).sum()


@dataclass(frozen=True)
class Routed:
    """The routing of a forward of some rows, and how many rows each packed token stands for."""

    routing: Routing
    rows: Float[Tensor, " T"]


class Experts:
    """Implements the learner's part, one update after another.

    Args:
        coefficient: of the load-balancing loss.
        replay: whether tokens go where the engine sent them.
    """

    def __init__(self, routers: Routers, *, coefficient: float, replay: bool) -> None:
        self.routers, self.coefficient, self.replay = routers, coefficient, replay
        self._begin(1)

    def _begin(self, tokens: int) -> None:
        self._tokens = tokens
        """Of all rows of the update."""
        self._known: Tensor | None = None
        """Load of the whole update, where it has several micro-batches."""
        self._went = torch.zeros(self.routers.number, self.routers.experts)
        self._probability = torch.zeros(self.routers.experts)
        self._replayed, self._differed = torch.zeros(()), torch.zeros(())

    def of(self, part: Forest, layout: Layout, device: torch.device) -> Routed:
        """How a forward of a part's rows is routed.

        Raises:
            RecipeError: the choices were recorded of another model.
        """
        rows = part.rows()
        if layout == "tree":
            stands_for = torch.bincount(rows.index[rows.present], minlength=part.n_tokens)
        else:
            stands_for = rows.present.flatten()
        choice = self._choice(part, layout) if self.replay and EXPERTS in part.columns else None
        routing = self.routers.routing(None if choice is None else choice.to(device))
        return Routed(routing, stands_for.float().to(device))

    def _choice(self, part: Forest, layout: Layout) -> Int[Tensor, "T width"]:
        """Where each packed token goes: it is recorded of the token after it, which was drawn from what it gave."""
        recorded = part.columns[EXPERTS].long()
        if recorded.shape[1] != self.routers.width or int(recorded.max()) >= self.routers.experts:
            raise RecipeError(
                f"learner.replay_routing: got true with recorded choices of another model ({recorded.shape[1]} per "
                f"token, up to expert {int(recorded.max())}; this one makes {self.routers.width} among "
                f"{self.routers.experts}); allowed: groups of this model, or false"
            )
        if layout == "rows":
            after = part.rows().gather(recorded, fill=OWN)
            return torch.cat([after[:, 1:], torch.full_like(after[:, :1], OWN)], 1).flatten(0, 1)
        choice = torch.full_like(recorded, OWN)
        known = (part.parent != Forest.ROOT) & (recorded[:, 0] != OWN)
        choice[part.parent[known]] = recorded[known]
        return choice

    def begin(self, tokens: int, parts: Sequence[Forest], forward: Callable[[Forest], Routed]) -> None:
        """Before an update.

        Args:
            tokens: of all its rows.
            parts: in which these will be forwarded.
            forward: forwards one, without gradient: with several parts the load of all is needed before the first
                one's gradient.
        """
        self._begin(tokens)
        if self.coefficient and len(parts) > 1:
            load = torch.zeros(())
            for part in parts:
                routed = forward(part)
                load = load + self._sums(routed)[0].sum(0)
            self._known = load / (tokens * self.routers.number)

    def auxiliary(self, routed: Routed) -> Float[Tensor, ""] | None:
        """What a forwarded part adds to the loss; None for nothing."""
        went, probability = self._sums(routed)
        self._went = self._went.to(went) + went
        self._probability = self._probability.to(probability) + probability.detach()
        for chosen in self._all(routed):
            self._compare(routed, chosen)
        if not self.coefficient:
            return None
        all_tokens = self._tokens * self.routers.number
        load = went.sum(0) / all_tokens if self._known is None else self._known
        return self.coefficient * load_balancing(load, probability / all_tokens)

    def _all(self, routed: Routed) -> list[Chosen]:
        return [chosen for router in sorted(routed.routing.found) for chosen in routed.routing.found[router]]

    def _sums(self, routed: Routed) -> tuple[Float[Tensor, "routers E"], Float[Tensor, " E"]]:
        """Tokens that went to each expert of each router, and the sum over all of each expert's probability."""
        went = routed.rows.new_zeros(self.routers.number, self.routers.experts)
        probability = routed.rows.new_zeros(self.routers.experts)
        for router, pieces in routed.routing.found.items():
            for chosen in pieces:
                rows = _of(routed.rows, chosen)
                went[router].index_add_(0, chosen.experts.flatten(), rows.repeat_interleave(self.routers.chosen))
                probability = probability + (chosen.logits.float().softmax(-1) * rows[:, None]).sum(0)
        return went, probability

    def _compare(self, routed: Routed, chosen: Chosen) -> None:
        if routed.routing.choice is None or chosen.experts is chosen.own:
            return
        rows = _of(routed.rows, chosen)
        given = _of(routed.routing.choice, chosen)[..., 0, 0] != OWN
        others = (chosen.experts[:, :, None] != chosen.own[:, None, :]).all(2).float().mean(1)
        self._replayed = self._replayed.to(rows) + rows[given].sum()
        self._differed = self._differed.to(rows) + (rows * others)[given].sum()

    def metrics(self) -> dict[str, Tensor]:
        """Of the update."""
        all_tokens = self._tokens * self.routers.number
        load = self._went / self._tokens
        found = {
            "experts/aux_loss": load_balancing(load.mean(0), self._probability / all_tokens),
            "experts/busiest": (load.max(1).values * self.routers.experts / self.routers.chosen).mean(),
            "experts/idle": (self._went == 0).float().mean(),
        }
        if self.replay:
            found["experts/replayed"] = self._replayed / all_tokens
            found["experts/differed"] = self._differed / self._replayed.clamp(min=1)
        return found


def _of(x: Tensor, chosen: Chosen) -> Tensor:
    """The values of a router's tokens, of those of all packed ones."""
    return x if chosen.at is None else x[chosen.at]
