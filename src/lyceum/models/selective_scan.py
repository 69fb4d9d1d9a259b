"""Mamba's selective scan from a state: transformers' function, like its kernels, begins from zero.

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t,    y_t = C_t h_t

The recurrence is linear in its state: what h_0 adds to y_t is C_t exp(A (dt_1 + ... + dt_t)) h_0, beside the scan from
zero.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from jaxtyping import Float

from lyceum.utils.lazy_imports import F, Tensor, torch

_NAME = "mamba_selective_scan"

_begun: ContextVar[Iterator[Tensor] | None] = ContextVar("states of the scans to come", default=None)


@contextmanager
def scanning_from(state: Tensor | None) -> Iterator[None]:
    """A layer's scan begins from this state, (row, channel, n); one scan per head from (row, head, channel, n)."""
    token = _begun.set(None if state is None else iter([state] if state.dim() == 3 else state.unbind(1)))
    try:
        yield
    finally:
        _begun.reset(token)


def with_scan(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's forward that begins as :func:`scanning_from` says; the same forward where it has no such scan."""
    own: Any = inspect.unwrap(forward)
    if _NAME not in own.__code__.co_names:
        return forward
    within = dict(own.__globals__)
    scan = within[_NAME]

    def from_state(*args: Any, **kwargs: Any) -> Any:
        states = _begun.get()
        return scan(*args, **kwargs) if states is None else scan_from(scan, next(states), *args, **kwargs)

    within[_NAME] = from_state
    copied = FunctionType(own.__code__, within, own.__name__, own.__defaults__, own.__closure__)
    copied.__kwdefaults__ = own.__kwdefaults__
    return copied


def scan_from(
    scan: Callable[..., Any],
    state: Float[Tensor, "row channel n"],
    hidden_states: Float[Tensor, "row channel t"],
    dt: Float[Tensor, "row channel t"],
    A: Float[Tensor, "channel n"],
    B: Float[Tensor, "row n t"],
    C: Float[Tensor, "row n t"],
    D: Float[Tensor, " channel"] | None = None,
    z: Float[Tensor, "row channel t"] | None = None,
    delta_bias: Float[Tensor, " channel"] | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **how: Any,
) -> Any:
    """``scan``, the function of transformers, from a state: the same arguments and results."""
    scanned, last = scan(
        hidden_states, dt, A, B, C, D=D, delta_bias=delta_bias, delta_softplus=delta_softplus, return_last_state=True,
        **how,
    )  # fmt: skip
    dt = dt.float() if delta_bias is None else dt.float() + delta_bias.float()[:, None]
    steps = (F.softplus(dt) if delta_softplus else dt).cumsum(-1)
    left = torch.exp(A[:, None, :] * steps[..., None]) * state.float()[:, :, None]
    out = scanned + torch.einsum("rctn,rnt->rct", left, C.float()).to(scanned.dtype)
    if z is not None:
        out = out * F.silu(z)
    return (out, last + left[:, :, -1].to(last.dtype)) if return_last_state else out
