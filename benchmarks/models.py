"""Every causal language model of the installed transformers at a tiny size: over token trees, over rows, or refused.

    python benchmarks/models.py --out models.json [--page docs/models.md] [--quick] [--only llama mamba] [--rest]

Each is built by one recipe of small values, with random weights, and loaded as a run would load it. Rows that branch,
longer than its windows and chunks, then go through it as a learner sends them, and prompts of several lengths are
sampled and continued. All is compared with transformers' own forward of each row alone, in float32.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common import machine, say, write

DEFINITIONS = {
    "runs": "trees: shared prefixes are computed once; trained over trees: in training, while each completion is "
    "sampled whole; rows: each completion whole; refused: not loaded; not built: the recipe of small values does not "
    "fit its configuration",
    "logprob": "largest |difference| of a token's log-probability from the row alone, nats",
    "gradient": "largest |difference| of a gradient's entry from the rows alone, relative to the largest entry",
    "sampled": "largest |difference| of a sampled token's log-probability from the row alone, nats, over prompts of "
    "several lengths and their continuations, the cache evicted between",
}
SMALL: dict[str, Any] = {
    "vocab_size": 99,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "dim_ff", "dff", "d_inner", "n_inner", "ffn_hidden_size"), 48),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size_mlp", "dense_intermediate_size"), 48),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers"), 4
    ),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "kv_channels", "attention_head_size", "dim_head", "rotary_dim"), 8),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "index_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "o_lora_rank", "hc_lowrank", "adapter_rank"), 8),
    "index_topk": 4,
    "index_n_heads": 16,  # with few heads many keys have a score of exactly 0, and which of them are taken is chance
    "n_shared_experts": 1,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), 128),
    **dict.fromkeys(("sliding_window", "window_size", "local_attention", "attention_window_size"), 8),
    **dict.fromkeys(("sliding_window_size", "attention_chunk_size", "local_attention_window_len", "rel_extent"), 8),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "n_group"), 2),
    **dict.fromkeys(("topk_group", "n_groups", "mamba_n_groups"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("shared_intermediate_size", "shared_experts_intermediate_size", "router_hidden_size"), 16),
    "moe_shared_expert_intermediate_size": 16,
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_n_heads", "n_mamba_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_headdim"), 16),
    "mamba_d_ssm": 64,
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 8),
    "linear_num_key_heads": 2,
    **dict.fromkeys(("linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 16),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank", "d_rel", "gated_norm_rank"), 8),
    "vocab_size_per_layer_input": 99,
    "num_kv_shared_layers": 1,
    "zero_expert_num": 2,
    "first_k_dense_replace": 1,
    **dict.fromkeys(("attn_layer_period", "expert_layer_period"), 2),
    **dict.fromkeys(("attn_layer_offset", "expert_layer_offset"), 1),
    "block_size": 8,
    "ngram_vocab_size_base": 50,
    "make_ngram_vocab_size_divisible_by": 2,
    "split_ngram_parts": 1,
    "num_codebooks": 1,
    "default_language": "en_XX",
    "attention_types": [[["global", "local"], 2]],
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
"""By the names that configurations have for them; a configuration takes those that it has."""
OTHERWISE: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"hidden_size": 64, "head_dim": 16, "num_key_value_heads": 4},
    {"num_hidden_layers": 6, "num_key_value_heads": 4},
    {"num_hidden_layers": 2},
    {"head_dim": 16},
    {"num_kv_shared_layers": 0},
)
"""What is tried in turn until the model runs."""
LARGEST = 20_000_000
"""Parameters above which a model was not made small."""
QUICK = ("llama", "qwen3_5_text", "mamba", "bert")
SECONDS = 900
"""Wall-clock limit per model, of a crowded machine."""


def built(kind: str) -> Any:
    """A tiny model of this kind with random weights, spread widely enough that its logits are far from flat."""
    import torch
    import transformers

    config_class = transformers.CONFIG_MAPPING[kind]
    default = config_class()
    error: Exception = ValueError("no small values fit")
    for other in OTHERWISE:
        try:
            config = config_class(**_small(default, SMALL | other))
            with torch.device("meta"):
                shapes = transformers.AutoModelForCausalLM.from_config(config)
            if (count := sum(weight.numel() for weight in shapes.parameters())) > LARGEST:
                raise ValueError(f"{count} parameters remain")
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.dim() > 1:
                        torch.nn.init.normal_(weight, std=0.1)
                model(input_ids=torch.arange(3, 12)[None], use_cache=False)
            return model
        except Exception as raised:
            error = raised
    raise error


def _small(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that a configuration has a place for, and those of its parts."""

    def has(name: str) -> bool:
        try:
            return hasattr(config, name) and not isinstance(getattr(type(config), name, None), property)
        except Exception:  # some raise where layers differ in it
            return True

    parts = {name: getattr(config, name, None) for name in type(config).sub_configs}
    nested = {name: _small(part, values) for name, part in parts.items() if part is not None}
    return {name: value for name, value in values.items() if has(name)} | nested


def examined(kind: str) -> dict[str, Any]:
    """The table's row of a kind."""
    import torch

    from lyceum.models.scratch import character_tokenizer
    from lyceum.models.trial import logits_alone, policy_of

    torch.set_num_threads(1)
    try:
        model = built(kind)
    except Exception as error:
        return {"runs": "not built", "why": _line(error)}
    config = model.config.get_text_config()
    row: dict[str, Any] = {
        "class": type(model).__name__,
        "layers": sorted(set(getattr(config, "layer_types", None) or ())),
    }
    plain = copy.deepcopy(model)
    try:
        policy = policy_of(model, character_tokenizer(context=128), logits_alone(model))
    except Exception as error:  # as at load, where it is one line
        return row | {"runs": "refused", "why": _line(error)}
    how = policy.by_rows
    if how is None:
        row |= {"runs": "trees"}
    else:
        runs = "rows" if how.attention is None else "trained over trees"
        row |= {"runs": runs, "why": how.why, "cache": how.caches, "pads": how.pads}
    try:
        return row | _learnt(policy, plain) | {"sampled": _sampled(policy, plain)}
    except Exception as error:
        return row | {"error": _line(error)}


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:300]


def _alone(plain: Any, path: Sequence[int], start: int) -> Any:
    """Log-probabilities of a row's tokens from ``start`` on, by transformers' own forward of this row."""
    import torch

    tokens = torch.tensor(path)
    logits = plain(input_ids=tokens[None], use_cache=False).logits[0, start - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, tokens[start:, None]).squeeze(1)


def _learnt(policy: Any, plain: Any) -> dict[str, float]:
    """Differences of log-probabilities and gradients over rows that branch twice."""
    import torch

    from lyceum.core.types import Scored
    from lyceum.models.packed_paths import packed, trie_logprobs

    draw = torch.Generator().manual_seed(0)

    def some(count: int) -> list[int]:
        return torch.randint(3, 99, (count,), generator=draw).tolist()

    prompt, middle = some(12), some(10)
    paths = [prompt + some(20), prompt + some(9), prompt + middle + some(18), prompt + middle + some(14)]
    (trie,) = packed(paths, 10_000)
    got = trie_logprobs(policy, trie, [Scored(path, len(prompt), len(path)) for path in paths])
    expected = torch.cat([_alone(plain, path, len(prompt)) for path in paths])
    weight = torch.randn(len(got), generator=draw)
    (got * weight).sum().backward()
    (expected * weight).sum().backward()
    gradients = dict(policy.causal.named_parameters())
    apart, largest = 0.0, 0.0
    for name, one in plain.named_parameters():
        if one.grad is not None:
            mine = gradients[name].grad
            apart = max(apart, float(((0 if mine is None else mine) - one.grad).abs().max()))
            largest = max(largest, float(one.grad.abs().max()))
    return {"logprob": float((got - expected).detach().abs().max()), "gradient": apart / largest}


def _sampled(policy: Any, plain: Any) -> float:
    """Difference of what is sampled from prompts of several lengths, and from what continues it."""
    import asyncio

    import torch

    from lyceum.core.types import Request, Sampling
    from lyceum.engine.embedded import EmbeddedConfig
    from lyceum.utils.aio import run_async

    engine = EmbeddedConfig.model_validate({"keep_tokens": 40}).build(policy)
    sampling, apart = Sampling(max_completion_tokens=12), 0.0

    async def turn(prefixes: Sequence[Sequence[int]]) -> list[Any]:
        return await asyncio.gather(*(engine.extend(Request(p, (1, 2), sampling, keep=True)) for p in prefixes))

    prefixes: list[Sequence[int]] = [list(range(3, 3 + length)) for length in (1, 4, 13, 25)]
    for _ in range(2):
        drawn = run_async(turn(prefixes))
        for prefix, samples in zip(prefixes, drawn, strict=True):
            for one in samples:
                with torch.no_grad():
                    expected = _alone(plain, [*prefix, *one.tokens], len(prefix))
                apart = max(apart, float((torch.tensor(one.model_logprob) - expected).abs().max()))
        prefixes = [[*prefix, *samples[0].tokens, 7, 8, 9] for prefix, samples in zip(prefixes, drawn, strict=True)]
    return apart


def _child(kind: str, out: Connection) -> None:
    warnings.simplefilter("ignore")
    out.send(examined(kind))


def guarded(kind: str) -> dict[str, Any]:
    """The row of a kind, from a process of its own: what crashes or hangs is one row."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(kind, there), daemon=True)
    process.start()
    there.close()
    try:
        row = here.recv() if here.poll(SECONDS) else {"runs": "not built", "why": f"no answer in {SECONDS} s"}
    except EOFError:
        row = {"runs": "not built", "why": "its process died"}
    process.kill()
    process.join()
    return row


def page(result: Mapping[str, Any]) -> str:
    """The table as a page of the documentation."""
    rows: Mapping[str, Mapping[str, Any]] = result["models"]
    count = Counter(row["runs"] for row in rows.values())
    lines = [
        "# Models",
        "",
        "Every configuration that `AutoModelForCausalLM` of transformers "
        f"{result['machine']['transformers']} knows, at a tiny size with random weights, loaded as a run loads it: "
        f"{count['trees']} run over token trees, {count['trained over trees']} are trained over them and sampled over "
        f"rows, {count['rows']} run over rows, {count['refused']} are refused, and "
        f"{count['not built']} could not be built by the one recipe of small values. [What that means](own-model.md"
        "#which-models). This page is written by `benchmarks/models.py --page`.",
        "",
        *(f"- *{name}*: {text}" for name, text in DEFINITIONS.items()),
        "",
        _hybrids(),
        "",
        "| model | runs over | layers | log-probability | gradient | sampled |",
        "|---|---|---|---|---|---|",
    ]
    order = ("trees", "trained over trees", "rows", "refused", "not built")
    for kind, row in sorted(rows.items(), key=lambda item: (order.index(item[1]["runs"]), item[0])):
        if row["runs"] in order[:3]:
            figures = [f"{row[name]:.0e}" if name in row else "raised" for name in ("logprob", "gradient", "sampled")]
            runs = row["runs"] if row.get("cache", True) else f"{row['runs']}, no cache"
            lines.append(f"| {kind} | {runs} | {', '.join(row['layers']) or 'attention'} | {' | '.join(figures)} |")
    for runs in order[3:]:
        lines += ["", f"## {runs.capitalize()}", ""]
        lines += [
            f"- {kind}: {row['why'].replace('|', ' ').replace('<', ' ')}"
            for kind, row in sorted(rows.items())
            if row["runs"] == runs
        ]
    return "\n".join(lines) + "\n"


def _hybrids() -> str:
    """What trees save where states branch, in sentences."""
    measured = json.loads((Path(__file__).parent / "results" / "hybrids.json").read_text())
    ratios = ", ".join(
        f"{row['cpu_seconds_ratio']:.2f} and {row['memory_ratio']:.2f} like {name}"
        for name, row in measured["models"].items()
    )
    drawn = "; ".join(
        ", ".join(f"{row[of]:.2f}" for of in ("sampling_cpu_ratio", "turn_cpu_ratio", "sampling_memory_ratio"))
        + f" like {name}"
        for name, row in measured["models"].items()
    )
    return (
        f"Where states branch, training {measured['samples']} samples of a prompt of {measured['prompt']} tokens takes "
        f"of the rows' CPU time and memory: {ratios}. Drawing them, what continues them, and the memory of both: "
        f"{drawn} (small models, `benchmarks/hybrids.py`)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Every causal language model at a tiny size.")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--page", type=Path, help="page of the documentation to write")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", help="only these kinds")
    parser.add_argument("--rest", action="store_true", help="keep the rows that --out has, and add the missing ones")
    options = parser.parse_args()

    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from lyceum.engine import embedded  # noqa: F401  # imported once, before the processes are forked
    from lyceum.models import trial  # noqa: F401

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    kinds = options.only or (QUICK if options.quick else sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    before = json.loads(options.out.read_text())["models"] if options.rest and options.out.is_file() else {}
    rows: dict[str, Any] = dict(before)
    for kind in kinds:
        if kind in before:
            continue
        rows[kind] = guarded(kind)
        figures = " ".join(
            f"{name} {rows[kind][name]:.1e}" for name in DEFINITIONS if name in rows[kind] and name != "runs"
        )
        say(f"{kind}: {rows[kind]['runs']} {figures} {rows[kind].get('error') or rows[kind].get('why', '')}")
        if options.out:  # what is measured stays, whatever the next one does
            options.out.write_text(json.dumps({"models": rows}, indent=1))
    write({"machine": machine(), "definitions": DEFINITIONS, "models": rows}, options.out)
    if options.page:
        options.page.write_text(page({"machine": machine(), "models": rows}))


if __name__ == "__main__":
    main()
