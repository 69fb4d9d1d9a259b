"""The routers of a mixture of experts: which experts each token goes to, watched, and replayed.

transformers says which modules a model's routers are, and nearly all of them give logits, weights and indices of the
chosen experts, which they take by ``topk``. There the choice is replaced: the weights are then those of the given
experts under the router as it is, and gradients go through them. Whether that holds of a model is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int

from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

if TYPE_CHECKING:
    from lyceum.models.policy import Policy

OWN = -1
"""In the place of an expert: what the router itself chooses."""
_ROUTERS, _NUMBER = "lyceum_routers", "lyceum_router"
_TRIED = 8
"""Tokens of the forwards in which routers are tried."""


@dataclass(frozen=True)
class Chosen:
    """What one router did with n tokens.

    Attributes:
        at: their places among the packed tokens; None: they are all of them, in order.
        logits: of all E experts.
        weights: of the k that each went to.
        experts: these.
        own: those that the router would have chosen.
    """

    at: Int[Tensor, " n"] | None
    logits: Float[Tensor, "n E"]
    weights: Float[Tensor, "n k"]
    experts: Int[Tensor, "n k"]
    own: Int[Tensor, "n k"]


@dataclass
class Routing:
    """What the routers of a model do in a forward over T packed tokens.

    Attributes:
        choice: experts that each token goes to, by router, each ``OWN`` where it chooses. None: all choose.
        of: how many there are.
        found: what each router did, once for each piece of the tokens that was forwarded.
    """

    choice: Int[Tensor, "T routers k"] | None = None
    of: int = 0
    found: dict[int, list[Chosen]] = field(default_factory=dict)

    def run(self, router: int, forward: Callable[[], Any], at: Int[Tensor, " n"] | None) -> Any:
        """A router's forward of the tokens at these places."""
        if self.choice is None:
            logits, weights, experts = forward()
            own = experts
        else:
            given = self.choice[:, router]
            with _taking()(given if at is None else given[at], self.of) as taken:
                logits, weights, experts = forward()
            own = experts if taken.own is None else taken.own
        self.found.setdefault(router, []).append(Chosen(at, logits, weights, experts, own))
        return logits, weights, experts

    def experts(self) -> Int[Tensor, "T width"]:
        """Where each token went, one router's experts after another's; of tokens that were forwarded in one piece."""
        return torch.cat([self.found[router][0].experts for router in sorted(self.found)], 1)


_running: ContextVar[tuple[Routing, Tensor | None] | None] = ContextVar("routing", default=None)
"""Of the forward in progress, and the places of the tokens in it that are forwarded now; None: all."""


@contextmanager
def _set(running: tuple[Routing, Tensor | None] | None) -> Iterator[None]:
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)


def routed(routing: Routing | None) -> AbstractContextManager[None]:
    """Inside, routers do this; None: what they do by themselves, and nobody looks."""
    return _set(None if routing is None else (routing, None))


def forwarding(at: Int[Tensor, "R L"]) -> AbstractContextManager[None]:
    """Inside, the tokens that are forwarded are those at these places among the packed ones."""
    running = _running.get()
    return _set(None if running is None else (running[0], at.flatten()))


def routed_again() -> AbstractContextManager[None]:
    """Inside, what is forwarded again goes where it went: called where it was forwarded first."""
    running = _running.get()
    return _set(None if running is None else (replace(running[0], found={}), running[1]))


@dataclass(frozen=True)
class Routers:
    """A model's routers: how many, of how many experts, and how many of these each token goes to."""

    number: int
    experts: int
    chosen: int
    balanced: bool
    """Whether the model's family has a load-balancing loss."""
    coefficient: float | None
    """Of that loss, by the model's configuration."""

    @property
    def width(self) -> int:
        """Number of a token's choices."""
        return self.number * self.chosen

    def routing(self, choice: Int[Tensor, "T width"] | None = None) -> Routing:
        return Routing(None if choice is None else choice.unflatten(1, (self.number, self.chosen)), self.experts)

    @classmethod
    def of(cls, policy: Policy, got: str) -> Routers:
        """A policy's, which from now on take part in what :func:`routed` says.

        Args:
            got: what asks for them: the key, and what was given.
        Raises:
            RecipeError: the model has none, or theirs choose in another way.
        """
        causal: Any = policy.causal
        if (known := getattr(causal, _ROUTERS, None)) is not None:
            return known
        modules = _routers(causal)
        name = type(causal).__name__
        if not modules:
            raise RecipeError(f"{got}, but {name} has no routers of experts that transformers names; allowed: null")
        for number, module in enumerate(modules):
            setattr(module, _NUMBER, number)
            module.__class__ = _routed_class(type(module))
        try:
            experts, chosen = _tried(policy, len(modules))
        except (TypeError, ValueError, IndexError) as error:
            for module in modules:
                module.__class__ = type(module).__bases__[0]
            kind = type(modules[0]).__name__
            raise RecipeError(f"{got}, but what {kind} chooses cannot be replaced ({error}); allowed: null") from None
        config = causal.config.get_text_config()
        routers = cls(
            len(modules),
            experts,
            chosen,
            any(hasattr(sys.modules[kind.__module__], "load_balancing_loss_func") for kind in type(causal).__mro__),
            getattr(config, "router_aux_loss_coef", None),
        )
        setattr(causal, _ROUTERS, routers)
        return routers


def _routers(model: nn.Module) -> list[nn.Module]:
    """The modules whose logits transformers reports as those of routers."""
    kinds: list[type[nn.Module]] = []
    for module in model.modules():
        if isinstance(module, transformers.PreTrainedModel):
            recorders: Any = (type(module)._can_record_outputs or {}).get("router_logits", ())
            for recorder in recorders if isinstance(recorders, (list, tuple)) else (recorders,):
                kind = getattr(recorder, "target_class", recorder)
                kinds += [kind] if isinstance(kind, type) else []
    return [module for module in model.modules() if isinstance(module, tuple(kinds))]


def _tried(policy: Policy, routers: int) -> tuple[int, int]:
    """Number of experts, and of those that a token goes to, by two forwards of a few tokens.

    Raises:
        ValueError: what a router gives, or what it does with another choice than its own, is not as it should be.
    """
    from lyceum.models.tree_attention import TreePlan  # here: it imports what imports this

    tokens = torch.arange(_TRIED, device=policy.device) % policy.output.weight.shape[0]

    def forward(routing: Routing) -> list[Chosen]:
        with torch.no_grad(), routed(routing):
            plan = TreePlan([torch.arange(_TRIED)], [0]).to(policy.device)
            policy.hidden(tokens, torch.arange(_TRIED, device=policy.device), plan)
        if any(len(routing.found.get(router, ())) != 1 for router in range(routers)):
            raise ValueError("not all routers see each token once")
        return [routing.found[router][0] for router in range(routers)]

    own = forward(Routing())
    sizes = {(each.logits.shape[-1], each.experts.shape[-1]) for each in own}
    if len(sizes) > 1 or any(each.experts.shape[0] != _TRIED for each in own):
        raise ValueError("its routers differ")
    experts, chosen = sizes.pop()
    other = (torch.stack([each.experts for each in own], 1) + 1) % experts
    for number, each in enumerate(forward(Routing(other, experts))):
        if not torch.equal(each.experts, other[:, number]):
            raise ValueError("it goes where it did all the same")
        if not bool((each.weights.isfinite() & (each.weights != 0)).all()):
            raise ValueError("other experts than its own get no weight")
    return experts, chosen


@cache
def _routed_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A router's class that takes part in the routing of the forward in progress."""

    def forward(self: nn.Module, *inputs: Any, **named: Any) -> Any:
        running = _running.get()
        own = partial(kind.forward, self, *inputs, **named)
        return own() if running is None else running[0].run(getattr(self, _NUMBER), own, running[1])

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


@cache
def _taking() -> Any:
    """The class of what replaces a router's choice. Made here: torch is imported at its first use."""
    from torch.overrides import TorchFunctionMode

    class Taking(TorchFunctionMode):
        """Inside, ``topk`` over experts takes the given ones, where they are known."""

        def __init__(self, given: Int[Tensor, "n k"], experts: int) -> None:
            super().__init__()
            self.given, self.experts = given, experts
            self.own: Tensor | None = None

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if func not in (torch.topk, torch.Tensor.topk) or found.indices.shape != self.given.shape:
                return found
            scores = args[0] if args else (kwargs or {})["input"]
            if scores.shape[-1] != self.experts:  # of groups of experts
                return found
            self.own = found.indices
            experts = torch.where(self.given == OWN, found.indices, self.given)
            return type(found)((scores.gather(1, experts), experts))

    return Taking
