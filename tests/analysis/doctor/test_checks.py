"""Each check passes on the base model, and fails, with its cure, on a model, engine or learner with one defect."""

from __future__ import annotations

import asyncio
import copy
from functools import cache

import pytest
import torch
from damaged import DamagedConfig, DamagedLearnerConfig
from safetensors.torch import load_file, save_file
from tiny_models import plain_model, policy_like

from lyceum.analysis.doctor import run
from lyceum.analysis.doctor.request import DoctorRequest
from lyceum.analysis.doctor.result import CheckResult, LogprobDifference, allowed_in
from lyceum.analysis.doctor.subject import Subject
from lyceum.models import tree_attention
from lyceum.models.load import load_policy, save_policy
from lyceum.models.policy import Policy
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.progress import Progress

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@cache
def base():
    return load_policy(DoctorRequest.of("base").model)


def fresh():
    """A policy to damage: checks change its weights, too."""
    policy = base()
    return Policy(copy.deepcopy(policy.module), copy.deepcopy(policy.tokenizer))


def examined(policy=None, *checks, engine="embedded", learner="local", keys=()) -> dict[str, CheckResult]:
    """Results by name, of some checks or of all but the timing."""
    request = DoctorRequest.of("base", list(keys), engine=engine, learner=learner, tokens=12)
    policy = policy or fresh()
    subject = Subject(request, policy, request.engine.build(policy))
    chosen = {name: check for name, check in run.CHECKS.items() if (name in checks if checks else name != "speed")}

    async def all_of_them():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "CHECKS", chosen)
            return await run.run_checks(subject, Progress(None, mode="silent"))

    return {result.check: result for result in asyncio.run(all_of_them())}


def failing(results):
    return {name for name, result in results.items() if result.status == "fails"}


def of_engine(defect, *checks):
    return examined(None, *checks, engine=DamagedConfig(defect=defect))


def with_template(template):
    policy = fresh()
    policy.tokenizer.chat_template = template
    return policy


def test_all_checks_pass_on_the_base_model():
    results = examined()
    assert not failing(results)
    assert {result.status for result in results.values()} <= {"ok", "note"}
    assert all(result.allowed for result in results.values() if result.status == "ok")
    for layout in ("tree", "rows"):
        assert results[f"log-probabilities: engine and learner, {layout}"].values["max"] < 1e-4
    assert results["gradients: against float64"].values["relative_error"] < 1e-4
    assert results["publishing: the update"].values["moved"] > 1e-3


def test_all_checks_pass_with_adapters():
    request = DoctorRequest.of("base", ["model.lora=true"])
    policy = load_policy(request.model)
    results = examined(policy, "loading", "log-probabilities", "gradients", "publishing", "saving")
    assert not failing(results)
    assert "trained" in results["loading: model"].found


def test_all_checks_pass_with_adapters_on_rounded_weights_and_one_says_how_far_these_are_off():
    keys = ["model.lora=true", "model.quantise=int8"]
    policy = load_policy(DoctorRequest.of("base", keys).model)
    checks = ("loading", "log-probabilities", "determinism", "gradients", "publishing", "saving")
    results = examined(policy, *checks, keys=keys)
    assert not failing(results)
    assert 0.001 < results["loading: rounding"].values["relative_error"] < 0.01  # half a step of 127 is 0.4 %
    assert "loading: rounding" not in examined(None, "loading")


@pytest.mark.parametrize("name", ["gpt-oss-sinks", "deepseek3-latents"])
def test_all_checks_pass_with_other_attention(name):
    model = plain_model(name, spread=0.1)
    results = examined(policy_of(model, fresh().tokenizer, logits_alone(model)))
    assert not failing(results)
    assert "log-probabilities: engine and learner, tree" in results


def test_a_mixture_of_experts_passes_the_gradients_in_float64():
    policy = policy_like(plain_model("qwen3-experts", spread=0.1))
    results = examined(policy, "gradients")
    assert not failing(results)
    assert results["gradients: against float64"].values["relative_error"] < 1e-4


def test_engine_and_learner_are_examined_beyond_the_models_window():
    windowed = plain_model("mistral-window", sliding_window=70)  # prompts are shorter
    both = {f"log-probabilities: 94 tokens, {who} and transformers" for who in ("engine", "learner")}
    results = examined(policy_like(windowed), "log-probabilities")
    assert both <= results.keys()
    assert not failing(results)

    own = tree_attention._attention
    with pytest.MonkeyPatch.context() as patch:
        blind = lambda *given, sliding_window=None, **how: own(*given, **how)  # noqa: E731
        patch.setattr(tree_attention, "_attention", blind)
        # The engine decodes by its own products; the learner goes through this attention.
        failed = failing(examined(policy_like(windowed), "log-probabilities"))
        assert "log-probabilities: 94 tokens, learner and transformers" in failed
    tree_attention.take_over(copy.deepcopy(windowed))  # transformers is told of it again


# Template ------------------------------------------------------------------------------------------------------------


def test_a_template_that_renders_otherwise_each_time_fails():
    # One in 10^10 that two are equal.
    results = examined(
        with_template("{{ range(100000) | random }}{{ range(100000) | random }}" + base().tokenizer.chat_template),
        "template",
    )
    assert failing(results) == {"template: renders"}
    assert "model.chat_template=FILE" in results["template: renders"].cure


def test_a_beginning_of_sequence_that_stands_twice_fails():
    policy = with_template("{{ bos_token }}{{ bos_token }}" + base().tokenizer.chat_template)
    policy.tokenizer.bos_token = "<pad>"
    result = examined(policy, "template")["template: beginning of sequence"]
    assert (result.status, result.values["beginnings"]) == ("fails", 2)
    assert "twice" in result.cure


def test_a_template_of_another_model_fails_for_its_special_tokens():
    result = examined(with_template(CHATML), "template")["template: special tokens"]
    assert result.status == "fails"
    # One token per character: <|im_start|> has 12, <|im_end|> 10.
    assert result.values["split"] == {"<|im_start|>": 12, "<|im_end|>": 10}


def test_a_template_without_a_generation_prompt_fails():
    without = CHATML.partition("{% if add_generation_prompt")[0]
    result = examined(with_template(without), "template")["template: generation prompt"]
    assert result.status == "fails"
    assert result.values["before"] == "<|im_start|>assistant\n"
    assert "add_generation_prompt" in result.cure


def test_a_template_that_rewrites_earlier_answers_is_noted():
    thinking = CHATML.replace("m['content']", "('<think></think>' if m['role'] == 'assistant' else '') + m['content']")
    results = examined(with_template(thinking), "template", "end of sequence")
    result = results["template: generation prompt"]
    assert result.status == "note"
    assert "rewrites" in result.found
    assert results["template: next turn"].values["same"] == 0


def test_sampled_answers_are_what_the_next_turn_begins_with_on_the_base_model():
    values = examined(None, "template")["template: next turn"].values
    assert values["same"] == values["finished"] > 8


def test_a_template_for_one_turn_alone_is_noted():
    refusing = "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ raise_exception('one turn') }}{% endif %}"
    results = examined(with_template(refusing + "{{ m['content'] }}{% endfor %}"), "template", "end of sequence")
    assert not failing(results)
    assert results["template: generation prompt"].status == results["end of sequence: template"].status == "note"


# End of sequence -----------------------------------------------------------------------------------------------------


def test_a_turn_end_at_which_no_sample_stops_fails_and_names_the_setting():
    template = base().tokenizer.chat_template.replace("{{ eos_token }}", "{{ '<pad>' }}")
    results = examined(with_template(template), "end of sequence")
    assert failing(results) == {"end of sequence: template"}
    result = results["end of sequence: template"]
    assert (result.values["turn_end"], result.values["stop_ids"]) == (0, [1])
    assert "'rollout.sampling.stop_token_ids=[0]'" in result.cure


def test_an_end_of_sequence_that_only_the_tokenizer_knows_fails():
    policy = fresh()
    policy.causal.generation_config.eos_token_id = 7
    result = examined(policy, "end of sequence")["end of sequence: ids"]
    assert result.status == "fails"
    assert "[1, 7]" in result.cure


def test_an_engine_that_runs_past_the_end_of_sequence_fails():
    results = of_engine("runs-on", "end of sequence")
    assert failing(results) == {"end of sequence: samples"}


# Log-probabilities ---------------------------------------------------------------------------------------------------


def test_an_engine_with_shifted_log_probabilities_fails_by_their_shift():
    results = of_engine("shifted", "log-probabilities")
    assert failing(results) == {
        "log-probabilities: engine and transformers",
        "log-probabilities: engine and learner, tree",
        "log-probabilities: engine and learner, rows",
    }
    result = results["log-probabilities: engine and learner, tree"]
    assert result.values["mean"] == pytest.approx(0.01, abs=1e-4)
    assert "by position 1-" in result.found
    assert "objective.importance" in result.cure


def test_a_learner_that_is_wrong_in_one_layout_fails_there_and_is_named():
    results = examined(None, "log-probabilities", learner=DamagedLearnerConfig(defect="shifted-rows"))
    assert failing(results) == {"log-probabilities: engine and learner, rows"}
    assert "the learner computes another" in results["log-probabilities: engine and learner, rows"].cure


@pytest.mark.parametrize(
    ("defect", "failed"),
    [
        (
            "untempered",
            {
                "log-probabilities: drawn at temperature 1, 0.6",
                "log-probabilities: drawn at temperature 0.8, top-p 0.9",
            },
        ),
        ("untruncated", {"log-probabilities: drawn at temperature 0.8, top-p 0.9"}),
        ("shifted-scores", {"log-probabilities: scored text and transformers"}),
    ],
)
def test_probabilities_of_another_distribution_than_the_one_drawn_from_fail(defect, failed):
    assert failing(of_engine(defect, "log-probabilities")) == failed


def test_greedy_tokens_of_other_weights_fail():
    results = of_engine("other-weights", "greedy", "log-probabilities")
    assert "greedy: engine and transformers" in failing(results)
    assert "log-probabilities: engine and transformers" in failing(results)


def test_autocast_is_held_to_what_bfloat16_rounds():
    results = examined(None, "log-probabilities", "gradients", "publishing", keys=["learner.autocast=bfloat16"])
    assert not failing(results)
    result = results["log-probabilities: engine and learner, tree"]
    assert "bfloat16" in result.allowed
    assert result.values["mean"] > allowed_in(["float32"]).mean_nats


# Determinism ---------------------------------------------------------------------------------------------------------


def test_an_engine_that_ignores_seeds_fails_twice():
    assert failing(of_engine("ignores-seeds", "determinism")) == {
        "determinism: the same request twice",
        "determinism: alone and in a batch",
    }


def test_an_engine_whose_samples_depend_on_the_batch_fails_for_that_alone():
    assert failing(of_engine("mixes-batch", "determinism")) == {"determinism: alone and in a batch"}


# Learning ------------------------------------------------------------------------------------------------------------


def test_a_wrong_gradient_of_one_weight_fails_and_names_it():
    policy = fresh()
    name = "model.layers.1.mlp.down_proj.weight"
    hook = policy.module.get_parameter(name).register_hook(lambda gradient: 3 * gradient)
    (result,) = examined(policy, "gradients").values()
    hook.remove()
    assert result.status == "fails"
    assert result.values["worst"] == name
    assert name in result.cure


def test_gradients_that_are_elsewhere_are_said_to_be_unchecked():
    (result,) = examined(None, "gradients", learner=DamagedLearnerConfig(defect="hidden")).values()
    assert result.status == "skipped"
    assert "0 of 39" in result.found


def test_a_model_too_large_for_float64_is_said_to_be_unchecked(monkeypatch):
    monkeypatch.setattr("lyceum.analysis.doctor.learning.free_bytes", lambda policy: 1 << 20)
    results = examined(None, "gradients", "saving")
    assert {result.status for result in results.values()} == {"skipped"}


def test_a_learner_that_changes_nothing_fails():
    results = examined(None, "publishing", learner=DamagedLearnerConfig(defect="idle"))
    assert failing(results) == {"publishing: the update"}


def test_an_engine_that_keeps_the_old_weights_fails_and_the_cure_is_load():
    results = of_engine("stale", "publishing")
    assert failing(results) == {"publishing: engine and new weights", "publishing: kept prefixes"}
    assert "still serves the old weights" in results["publishing: engine and new weights"].cure


def test_an_engine_that_keeps_its_cache_fails_for_kept_prefixes():
    results = of_engine("keeps-cache", "publishing")
    assert "publishing: kept prefixes" in failing(results)
    assert "prefix cache" in results["publishing: kept prefixes"].cure


def test_an_engine_that_does_not_count_versions_fails():
    assert failing(of_engine("no-version", "publishing")) == {"publishing: version"}


def test_a_model_that_computes_more_than_is_saved_fails():
    policy = fresh()
    policy.output.register_forward_hook(lambda module, inputs, output: 1.5 * output)
    results = examined(policy, "saving")
    assert failing(results) == {"saving: logits"}
    # |1.5 - 1| / |1.5|
    assert results["saving: logits"].values["relative"] == pytest.approx(1 / 3, abs=1e-3)


def test_a_tokenizer_that_is_not_the_saved_one_fails(monkeypatch):
    def without_end(policy, folder):
        other = Policy(copy.deepcopy(policy.module), copy.deepcopy(policy.tokenizer))
        other.tokenizer.chat_template = "Q: " + other.tokenizer.chat_template
        save_policy(other, folder)

    monkeypatch.setattr("lyceum.analysis.doctor.learning.save_policy", without_end)
    assert failing(examined(None, "saving")) == {"saving: tokenizer"}


# Loading, and what breaks --------------------------------------------------------------------------------------------


def test_embeddings_that_are_tied_against_the_configuration_fail():
    policy = fresh()
    policy.causal.config.tie_word_embeddings = True
    results = examined(policy, "loading")
    assert failing(results) == {"loading: embeddings"}
    assert "tie_word_embeddings to false" in results["loading: embeddings"].cure


def test_weights_that_were_initialised_randomly_are_noted(tmp_path):
    save_policy(fresh(), tmp_path / "m")
    weights = load_file(tmp_path / "m/model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tmp_path / "m/model.safetensors", metadata={"format": "pt"})
    request = DoctorRequest.of(str(tmp_path / "m"), ["model.allow_missing_weights=[lm_head.*]"], tokens=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CHECKS", {"loading": run.CHECKS["loading"]})
        report = run.examine(request)
    assert any("initialised randomly: 1 (lm_head.weight)" in result.found for result in report.results)


def test_an_error_in_a_check_fails_that_check_alone_with_its_traceback():
    results = of_engine("raises", "log-probabilities", "greedy")
    assert failing(results) == {"log-probabilities"}
    result = results["log-probabilities"]
    assert "ZeroDivisionError: no scores here" in result.found
    assert "damaged.py" in result.values["traceback"]


def test_differences_are_by_position_and_infinite_where_a_number_is_missing():
    # |a - b| is 0 1 2 3 and 4: means by position (0 + 4) / 2, 1, 2, 3; in all 10 / 5
    difference = LogprobDifference.of([[0.0, 1.0, 2.0, 3.0], [4.0]], [[0.0] * 4, [0.0]])
    assert difference.by_position == [(1, 1, 2.0), (2, 2, 1.0), (3, 3, 2.0), (4, 4, 3.0)]
    assert (difference.mean, difference.max, difference.worst) == (2.0, 4.0, (1, 0))
    for wrong in (float("nan"), float("-inf")):
        assert not LogprobDifference.of([[wrong]], [[0.0]]).within(allowed_in(["bfloat16"]))


def test_half_precision_is_allowed_more_than_float32():
    assert allowed_in(["float32", "float32"]).precision == "float32"
    assert allowed_in(["float32", "bfloat16"]).mean_nats > allowed_in(["float32"]).mean_nats
    assert str(torch.bfloat16) == f"torch.{allowed_in(['bfloat16']).precision}"
