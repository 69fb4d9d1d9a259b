"""A forward for generation directly from the weights, for the layer that Llama, Mistral, Qwen2 and Qwen3 share.

A decoding step of few rows is mostly call overhead: modules, norms in six operations, masks and rotary angles computed
again. Here the same mathematics takes about twenty torch calls per layer. The weights are read in place. Whatever is
not exactly this architecture, module by module, is left to the model's own forward.

    h = x + O attention(rotary(Q n), rotary(K n), V n),  n = norm(x)
    y = h + D (silu(G m) * U m),                         m = norm(h)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from jaxtyping import Float, Int

from lyceum.engine.cpu.weights import Packed, Packs, packed
from lyceum.models.policy import Policy
from lyceum.models.tree_attention import AttentionPlan
from lyceum.utils.lazy_imports import F, Tensor, nn, torch

_FAMILIES = {
    f"transformers.models.{name.lower()}.modeling_{name.lower()}": name
    for name in ("Llama", "Mistral", "Qwen2", "Qwen3")
}
_ROTARY = {"default", "linear", "llama3", "yarn"}
"""Kinds whose angles depend on the position alone, not on the longest sequence so far."""
_LARGE = 1 << 17
"""Minimum elements of a weight that is multiplied by columns."""
_FEW = 2
"""Maximum rows for which a large weight is best used unpacked."""
_MANY = 16
"""Minimum rows from which any weight is multiplied by columns, where the next operation accepts that layout."""
_LAYER_CHILDREN = frozenset({"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"})
_PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
_ATTENTION_CHILDREN = (_PROJECTIONS, _PROJECTIONS | {"q_norm", "k_norm"})
_MLP_CHILDREN = frozenset({"gate_proj", "up_proj", "down_proj", "act_fn"})


@dataclass(frozen=True)
class _Norm:
    """Root-mean-square norm of the last axis, in float32 as the modules do it.

    y = w * x / sqrt(mean(x^2) + eps)
    """

    weight: Tensor
    eps: Tensor

    @classmethod
    def of(cls, module: Any) -> _Norm:
        weight = module.weight.detach()
        return cls(weight, torch.tensor(module.variance_epsilon, dtype=torch.float32, device=weight.device))

    def __call__(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float32 else x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse = torch.addcmul(self.eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        if wide is x:
            return (x * inverse).mul_(self.weight)
        return (wide * inverse).to(x.dtype) * self.weight


@dataclass(frozen=True)
class _Linear:
    """x W^T + b.

    On a CPU, W x^T is the faster product where the weight does not fit a core's cache, or there are many rows: 1.5 to 3
    times for 2 to 5 rows and a weight of a million elements. Its output is column-major. From 3 rows on, a large weight
    in another order is faster still.
    """

    weight: Tensor
    bias: Tensor | None
    transposed: Tensor
    large: bool
    columns_pay: bool
    packed: Packed | None

    @classmethod
    def of(cls, module: nn.Linear, packs: Packs | None) -> _Linear:
        weight = module.weight.detach()
        here = weight.device.type == "cpu" and weight.dtype == torch.float32
        large = here and weight.numel() >= _LARGE
        bias = None if module.bias is None else module.bias.detach()
        repacked = packed(weight, packs) if large and packs is not None else None
        return cls(weight, bias, weight.t(), large, here, repacked)

    def __call__(self, x: Float[Tensor, "A i"]) -> Float[Tensor, "A o"]:
        pack = self.pack_for(x.shape[0])
        if pack is not None:
            return pack(x, self.bias)
        return self.columns(x).t().contiguous() if self.large else F.linear(x, self.weight, self.bias)

    def columns(self, x: Float[Tensor, "A i"]) -> Float[Tensor, "o A"]:
        if self.bias is None:
            return torch.mm(self.weight, x.t())
        return torch.addmm(self.bias[:, None], self.weight, x.t())

    def pack_for(self, rows: int) -> Packed | None:
        return self.packed if rows > _FEW else None

    def by_columns(self, rows: int) -> bool:
        return self.pack_for(rows) is None and (self.large or (self.columns_pay and rows >= _MANY))

    def added_to(self, residual: Float[Tensor, "A o"], x: Float[Tensor, "A i"]) -> Float[Tensor, "A o"]:
        pack = self.pack_for(x.shape[0])
        if pack is not None:
            return pack(x, self.bias).add_(residual)
        if self.large and x.shape[0] < _MANY:
            return residual + self.columns(x.contiguous()).t()
        out = torch.addmm(residual, x, self.transposed)
        return out if self.bias is None else out.add_(self.bias)


@dataclass(frozen=True)
class _Layer:
    before_attention: _Norm
    query: _Linear
    key: _Linear
    value: _Linear
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: _Linear
    before_mlp: _Norm
    gate: _Linear
    up: _Linear
    down: _Linear
    scale: float
    window: int | None

    @classmethod
    def of(cls, layer: Any, family: str, packs: Packs | None) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        # Llama's attention has no window, Mistral's the config's; each of Qwen's layers has its own.
        windows = {"Llama": None, "Mistral": getattr(attention.config, "sliding_window", None)}
        window = windows[family] if family in windows else attention.sliding_window  # noqa: SIM401
        normed = hasattr(attention, "q_norm")
        return cls(
            _Norm.of(layer.input_layernorm),
            _Linear.of(attention.q_proj, packs),
            _Linear.of(attention.k_proj, packs),
            _Linear.of(attention.v_proj, packs),
            _Norm.of(attention.q_norm) if normed else None,
            _Norm.of(attention.k_norm) if normed else None,
            _Linear.of(attention.o_proj, packs),
            _Norm.of(layer.post_attention_layernorm),
            _Linear.of(mlp.gate_proj, packs),
            _Linear.of(mlp.up_proj, packs),
            _Linear.of(mlp.down_proj, packs),
            float(attention.scaling),
            window,
        )


class Decoder:
    """Hidden states of packed tokens. Rebuilt whenever modules may have been changed or replaced.

    It holds views of the parameters' memory: weights that change in place are seen, replaced ones are not.

    Args:
        packs: cache of reordered copies of large weights, kept from one decoder to the next; None makes none.
    """

    def __init__(self, policy: Policy, family: str, packs: Packs | None = None) -> None:
        backbone = cast(Any, _text_body(policy))
        self._embedding: Tensor = backbone.embed_tokens.weight.detach()
        self._layers = [_Layer.of(layer, family, packs) for layer in backbone.layers]
        self.output = _Linear.of(policy.output, packs) if _is_plain(policy.output) else None
        """Faster replacement for the output layer in ``Policy.head``; None without one."""
        self._norm = _Norm.of(backbone.norm)
        self._rotary: nn.Module = backbone.rotary_emb
        self._dim = int(backbone.layers[0].self_attn.head_dim)
        self._angles(0)

    @classmethod
    def of(cls, policy: Policy, packs: Packs | None = None) -> Decoder | None:
        """The decoder of a model that has exactly this architecture; None for any other."""
        family = _family(policy)
        return None if family is None else cls(policy, family, packs)

    @property
    def usable(self) -> bool:
        """Whether these calls compute what the modules would compute now: not so under autocast."""
        return not torch.is_autocast_enabled(self._embedding.device.type)

    def _angles(self, position: int) -> None:
        """Compute the model's own cosines and sines for all positions up to this one, rounded up."""
        self._positions = max(256, 1 << position.bit_length())
        at = torch.arange(self._positions, device=self._embedding.device)[None]
        cos, sin = self._rotary(self._embedding[:1, None], position_ids=at)
        # rotate_half(x) is x rolled by half its width, its first half negated: the sign is moved into the sines.
        sin = torch.cat((-sin[..., : self._dim // 2], sin[..., self._dim // 2 :]), -1)
        self._cos, self._sin = cos[0, :, None], sin[0, :, None]

    def hidden(
        self, tokens: Int[Tensor, " A"], position: Int[Tensor, " A"], plan: AttentionPlan, *, furthest: int
    ) -> Float[Tensor, "A width"]:
        """The same as ``Policy.hidden``, without gradients. ``furthest`` is the highest position."""
        if furthest >= self._positions:
            self._angles(furthest)
        cos, sin = self._cos.index_select(0, position), self._sin.index_select(0, position)
        count, dim, half = len(tokens), self._dim, self._dim // 2
        x = F.embedding(tokens, self._embedding)
        for i, layer in enumerate(self._layers):
            normed = layer.before_attention(x)
            query, key = layer.query(normed).view(count, -1, dim), layer.key(normed).view(count, -1, dim)
            if layer.query_norm is not None and layer.key_norm is not None:
                query, key = layer.query_norm(query), layer.key_norm(key)
            query = torch.addcmul(query * cos, query.roll(half, -1), sin)
            key = torch.addcmul(key * cos, key.roll(half, -1), sin)
            value = layer.value(normed).view(count, -1, dim)
            attended = plan.attend(i, query, key, value, scale=layer.scale, window=layer.window)
            x = layer.out.added_to(x, attended.reshape(count, -1))
            normed = layer.before_mlp(x)
            if layer.gate.by_columns(count):
                gated = F.silu(layer.gate.columns(normed), inplace=True).mul_(layer.up.columns(normed)).t()
            else:
                gated = F.silu(layer.gate(normed), inplace=True).mul_(layer.up(normed))
            x = layer.down.added_to(x, gated)
        return self._norm(x)


def _family(policy: Policy) -> str | None:
    """The model's family, where every module is as in transformers and has no hooks; None otherwise."""
    causal, backbone = policy.causal, cast(Any, _text_body(policy))
    family = _FAMILIES.get(type(causal if policy.sight is None else backbone).__module__)
    if family is None or policy.module is not causal:
        return None
    if policy.sight is None and not _is(causal, family, "ForCausalLM"):
        return None
    hooks = nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        return None
    for module in backbone.modules():
        if _is_changed(module) or module.training:
            return None
    parameters = list(backbone.parameters())
    dtype, device = parameters[0].dtype, parameters[0].device
    if any(type(p) is not nn.Parameter or p.dtype != dtype or p.device != device for p in parameters):
        return None  # quantised, distributed or spread over devices
    fits = (
        _is(backbone, family, "Model")
        and type(backbone.embed_tokens) is nn.Embedding
        and backbone.embed_tokens.max_norm is None
        and _is(backbone.rotary_emb, family, "RotaryEmbedding")
        and backbone.rotary_emb.rope_type in _ROTARY
        and _is(backbone.norm, family, "RMSNorm")
        and len(backbone.layers) == backbone.config.num_hidden_layers
        and all(_layer_fits(layer, family, i) for i, layer in enumerate(backbone.layers))
    )
    return family if fits else None


def _text_body(policy: Policy) -> nn.Module:
    """The layers that tokens run through: of a model that sees, its text model's."""
    return policy.backbone if policy.sight is None else policy.sight.text


def _layer_fits(layer: Any, family: str, index: int) -> bool:
    from transformers.activations import SiLUActivation

    if not _is(layer, family, "DecoderLayer") or _children(layer) != _LAYER_CHILDREN:
        return False
    attention, mlp = layer.self_attn, layer.mlp
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
    linears = [getattr(attention, name) for name in sorted(_PROJECTIONS)]
    return (
        _is(attention, family, "Attention")
        and _children(attention) in _ATTENTION_CHILDREN
        and attention.layer_idx == index
        and _is(mlp, family, "MLP")
        and _children(mlp) == _MLP_CHILDREN
        and type(mlp.act_fn) in (nn.SiLU, SiLUActivation)
        and all(_is(norm, family, "RMSNorm") for norm in norms)
        and all(type(linear) is nn.Linear for linear in (*linears, mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    )


def _is_changed(module: nn.Module) -> bool:
    """Whether its forward has hooks or was replaced."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _is_plain(module: nn.Module) -> bool:
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter and not _is_changed(module)


def _is(module: nn.Module, family: str, what: str) -> bool:
    kind = type(module)
    return kind.__name__ == family + what and _FAMILIES.get(kind.__module__) == family


def _children(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, _ in module.named_children())
