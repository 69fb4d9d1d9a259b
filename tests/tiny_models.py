"""Tiny models of several architectures with random weights: each has something that attention must get right."""

import copy

import torch
from torch import nn
from transformers import (
    BambaConfig,
    BloomConfig,
    CohereConfig,
    DeepseekV3Config,
    FalconH1Config,
    Gemma2Config,
    GptOssConfig,
    GraniteConfig,
    JambaConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    MiMoV2FlashConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto import MODEL_FOR_CAUSAL_LM_MAPPING

from lyceum.models.policy import Policy
from lyceum.models.scratch import character_tokenizer

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}

CONFIGS = {
    "llama": lambda **more: LlamaConfig(**SMALL | {"num_key_value_heads": 4} | more),
    "llama-gqa": lambda **more: LlamaConfig(**SMALL | more),
    "qwen3": lambda **more: Qwen3Config(**SMALL | {"head_dim": 16} | more),
    "mistral-window": lambda **more: MistralConfig(**SMALL | {"sliding_window": 3} | more),
    "gemma2-capped-logits": lambda **more: Gemma2Config(
        **SMALL
        | {"head_dim": 8, "sliding_window": 3, "attn_logit_softcapping": None, "final_logit_softcapping": 0.5}
        | more
    ),
    "granite-divided-logits": lambda **more: GraniteConfig(
        **SMALL | {"logits_scaling": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5} | more
    ),
    "phi3-longrope": lambda **more: Phi3Config(
        **SMALL
        | {
            "original_max_position_embeddings": 20,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 100.0,
                "short_factor": [1.0] * 4,
                "long_factor": [8.0] * 4,
                "original_max_position_embeddings": 20,
            },
        }
        | more
    ),
    "qwen3-experts": lambda **more: Qwen3MoeConfig(
        **SMALL | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24} | more
    ),
    "cohere-multiplied-logits": lambda **more: CohereConfig(**SMALL | {"logit_scale": 0.25} | more),
    "gpt-oss-sinks": lambda **more: GptOssConfig(
        **SMALL | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5} | more
    ),
    "gemma2-capped-scores": lambda **more: Gemma2Config(
        **SMALL | {"head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 0.7, "query_pre_attn_scalar": 1} | more
    ),
    "deepseek3-latents": lambda **more: DeepseekV3Config(
        **SMALL | {"num_key_value_heads": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8} | more,
        q_lora_rank=8, kv_lora_rank=10, first_k_dense_replace=1, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
        topk_group=1, moe_intermediate_size=16,
    ),
    # Its layers without rotation multiply queries by a factor that grows with the position.
    "llama4-chunks": lambda **more: Llama4TextConfig(
        **SMALL | {"head_dim": 8, "attention_chunk_size": 4, "no_rope_layers": [1, 0], "floor_scale": 3} | more,
        intermediate_size_mlp=48, num_local_experts=4, num_experts_per_tok=1, moe_layers=[1], attn_scale=0.5,
    ),
    # Keys as wide as its values are not, fewer key heads outside windows, sinks inside.
    "mimo2-widths": lambda **more: MiMoV2FlashConfig(
        **SMALL | {"head_dim": 8, "v_head_dim": 12, "sliding_window": 5} | more,
        layer_types=["sliding_attention", "full_attention"], swa_head_dim=12, swa_num_attention_heads=4,
        swa_num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        n_group=1, topk_group=1,
    ),
}  # fmt: skip
MORE_ATTENTION = ("gpt-oss-sinks", "gemma2-capped-scores", "deepseek3-latents", "llama4-chunks", "mimo2-widths")
"""Those whose attention is more than a causal softmax over keys as the configuration has them."""


UNFIT = {
    "a convolution": lambda: tiny(Lfm2Config(**SMALL | {"layer_types": ["conv", "full_attention"]})),
    "linear attention": lambda: tiny(
        Qwen3_5TextConfig(
            **SMALL | {"head_dim": 16, "layer_types": ["linear_attention", "full_attention"]},
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        )
    ),
    "attention of its own": lambda: tiny(
        BloomConfig(
            vocab_size=99, hidden_size=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=1, pad_token_id=0
        )
    ),
    "states alone": lambda: tiny(
        MambaConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8, bos_token_id=0, eos_token_id=1,
            pad_token_id=0,
        )
    ),
}  # fmt: skip
"""Models that trees cannot use, and rows can."""

HYBRIDS = {
    "gated delta net": UNFIT["linear attention"],
    "convolution": UNFIT["a convolution"],
    "mamba": UNFIT["states alone"],
    "mamba beside attention": lambda: tiny(
        JambaConfig(
            **SMALL, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
            num_experts=4, mamba_d_state=8, use_mamba_kernels=False,
        )
    ),
    "mamba 2 beside attention": lambda: tiny(
        BambaConfig(
            **SMALL, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_chunk_size=16,
        )
    ),
    "mamba 2 and attention in one layer": lambda: tiny(
        FalconH1Config(
            **SMALL | {"head_dim": 8}, mamba_n_heads=4, mamba_d_head=16, mamba_d_ssm=64, mamba_d_state=8,
            mamba_chunk_size=16,
        )
    ),
}  # fmt: skip
"""Models some of whose layers have states, which branch."""


def plain_model(name: str = "llama-gqa", *, seed: int = 0, spread: float = 0.3, **more) -> PreTrainedModel:
    """A model as transformers has it, its weights spread widely enough that attention and logits are far from flat."""
    return tiny(CONFIGS[name](**more), seed=seed, spread=spread)


def tiny(config, *, seed: int = 0, spread: float = 0.1) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=spread)
    return model.eval()


def policy_like(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast | None = None) -> Policy:
    """The same weights as lyceum runs them; the model stays as it is, on transformers' own attention, as the oracle."""
    return Policy(copy.deepcopy(model), tokenizer or character_tokenizer(context=256))
