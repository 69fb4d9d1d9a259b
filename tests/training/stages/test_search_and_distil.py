"""Rounds of searching, distilling and fitting, on an untrained model that seldom finds anything."""

import json
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from lyceum.analysis.comparison.run import with_budget
from lyceum.core.settings import RewardSettings, TracesSettings
from lyceum.core.types import Grader, TaskSource, Trace
from lyceum.models import scratch
from lyceum.recipe.schema import parse
from lyceum.reward.base import each, verdict
from lyceum.training.stages.search_and_distil import SearchAndDistilRun
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


class Told(TracesSettings):
    """Of every tree a text without tokens: right by the reward below where it begins with a digit."""

    kind: Literal["test-told"] = "test-told"

    def build(self):
        return lambda trees, decode: [
            Trace(tree.task.id, tree.task.messages, text) for tree in trees for text in ("1+1", "+11")
        ]


class BeginsWithDigit(RewardSettings):
    """Right where the first letter is a digit: an untrained model finds that now and then."""

    kind: Literal["test-begins-with-digit"] = "test-begins-with-digit"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: verdict(leaf.completion[:1].isdigit()))


SEARCH = {
    "kind": "value-mcts",
    "iterations": 3,
    "width": 3,
    "step": {"tokens": 2},
    "forward_steps": 1,
    "sampling": {"max_completion_tokens": 4},
}
STAGE = {
    "kind": "search-and-distil",
    "steps": 6,
    "rounds": 2,
    "tasks_per_round": 6,
    "traces_per_step": 4,
    "rollout": SEARCH,
    "value": {"kind": "model", "lr": 1e-3, "batch": 8},
    "learner": {"lr": 1e-2},
}
RUN = {"model": "scratch", "tasks": {"kind": "chain", "levels": [1, 2]}, "evaluate": {"n": 0}}


def recipe(tmp_path, name="run", reward="test-begins-with-digit", **stage):
    return parse(RUN | {"name": name, "output": str(tmp_path), "reward": reward, "stages": [STAGE | stage]})


def metrics(tmp_path, name="run"):
    return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]


def untimed(lines):
    return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]


def weights(tmp_path, name, of="model"):
    return (tmp_path / name / of / "model.safetensors").read_bytes()


def test_each_round_searches_once_and_distils_its_share_of_the_steps(tmp_path):
    train(recipe(tmp_path))
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    searched = [line["step"] for line in lines if "traces/found" in line]
    assert searched == [1, 4]  # 6 steps in 2 rounds: what the search found is told with the first of each three
    assert all("nll" in line for line in lines)
    assert lines[0]["traces/found"] > 0
    sampled = [line["tokens_sampled"] for line in lines]
    assert sampled[0] == sampled[2] < sampled[3] == sampled[5]
    assert sorted(p.name for p in (tmp_path / "run" / "rollouts").iterdir()) == [
        "step-000001.parquet",
        "step-000004.parquet",
    ]


def test_the_policy_learns_what_its_searches_found(tmp_path):
    train(recipe(tmp_path, steps=30, tasks_per_round=12))
    first, second = (line for line in metrics(tmp_path) if "traces/found" in line)
    # Half as many again at least: catches a search that goes on with the weights of the stage's beginning.
    assert second["reward/mean"] > 1.5 * first["reward/mean"] > 0


def test_the_value_model_is_left_as_a_folder_that_transformers_loads(tmp_path):
    train(recipe(tmp_path))
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run" / "value")
    assert model.config.architectures == ["LlamaForTokenClassification"]
    assert model.score.weight.abs().sum() > 0  # it began at 0
    again = {"kind": "model", "path": str(tmp_path / "run" / "value")}
    train(recipe(tmp_path, "again", value=again, steps=2, rounds=2))


def after_fine_tuning(folder, name, start):
    """A stage before it, so that the weights it begins with are not the model's, and a buffer."""
    before = {"kind": "sft", "steps": 1, "tasks_per_step": 2, "learner": {"lr": 1e-2}}
    stage = STAGE | {"start": start, "buffer": None}
    where = {"name": name, "output": str(folder), "reward": "test-begins-with-digit", "checkpoint_every": 1}
    return parse(RUN | where | {"stages": [before, stage]})


@pytest.fixture(scope="module", params=["current", "first"])
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    train(after_fine_tuning(folder, "whole", request.param))
    return folder, request.param


@pytest.mark.parametrize("after", [2, 4])
def test_a_resumed_run_ends_in_the_same_bits(after, whole):
    # Stopped within a round, and after the first step of the next one.
    folder, start = whole
    cut = after_fine_tuning(folder, f"cut-{after}", start)
    asked = iter([False] * after + [True])
    with pytest.raises(Interrupted):
        train(cut, interrupted=lambda: next(asked))
    assert len(metrics(folder, cut.name)) == after + 1
    train(cut, resume=True)
    assert untimed(metrics(folder, cut.name)) == untimed(metrics(folder, "whole"))
    assert weights(folder, cut.name) == weights(folder, "whole")
    assert weights(folder, cut.name, "value") == weights(folder, "whole", "value")


def test_a_search_that_is_cut_off_is_repeated_to_the_same_bits(tmp_path, monkeypatch):
    train(recipe(tmp_path, "whole"))
    fit, calls = SearchAndDistilRun.fit, []

    def failing(self, examples):
        calls.append(self.step)
        if calls == [0, 3]:
            raise KeyboardInterrupt  # killed when the second round's trees are there, before its first step
        return fit(self, examples)

    monkeypatch.setattr(SearchAndDistilRun, "fit", failing)
    every_step = parse(recipe(tmp_path, "cut").resolved() | {"checkpoint_every": 1})
    with pytest.raises(KeyboardInterrupt):
        train(every_step)
    train(every_step, resume=True)
    assert calls == [0, 3, 3]
    assert untimed(metrics(tmp_path, "cut")) == untimed(metrics(tmp_path, "whole"))
    assert weights(tmp_path, "cut") == weights(tmp_path, "whole")


def test_a_round_that_finds_nothing_is_passed_over_and_says_so(tmp_path):
    train(recipe(tmp_path, reward="task"))  # no chain is solved in four tokens
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [3, 6]
    assert [line["traces/distilled"] for line in lines] == [0, 0]
    assert all("nll" not in line for line in lines)
    assert [line["value/paths"] for line in lines] == [0, 0]  # nothing is inferred without a right answer
    trained = torch.cat([p.flatten() for p in scratch.build_scratch(seed=0)[0].parameters()])
    left = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    assert torch.equal(trained, torch.cat([p.flatten() for p in left.parameters()]))


def test_a_stage_without_traces_trains_the_value_model_alone(tmp_path):
    train(recipe(tmp_path, traces=None, targets="mean-outcome", steps=2))
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[-1]["value/updates"] > 0
    assert all("nll" not in line for line in lines)


def test_traces_of_earlier_rounds_are_kept_as_the_buffer_says(tmp_path):
    train(recipe(tmp_path, "none"))
    train(recipe(tmp_path, "all", buffer=None))
    (first, second), (_, kept) = (
        [line for line in metrics(tmp_path, name) if "traces/found" in line] for name in ("none", "all")
    )
    assert second["traces/distilled"] == second["traces/found"]
    assert kept["traces/distilled"] == first["traces/found"] + kept["traces/found"]


def test_texts_made_of_trees_are_verified_before_they_are_distilled(tmp_path):
    train(recipe(tmp_path, "verified", traces="test-told", rounds=1))
    line = metrics(tmp_path, "verified")[0]
    assert (line["traces/found"], line["traces/not_right"]) == (6, 6)  # one of two for each of six tasks
    train(recipe(tmp_path, "as-told", traces="test-told", rounds=1, verified=False))
    assert metrics(tmp_path, "as-told")[0]["traces/found"] == 12


def test_a_comparison_by_tokens_gives_it_rounds_that_last(tmp_path):
    (stage,) = with_budget(recipe(tmp_path), 600, keep_steps=False).stages
    assert (stage.max_tokens, stage.rounds, stage.steps) == (600, 100, 300)  # six tasks a round, three steps each
    (kept,) = with_budget(recipe(tmp_path), 600, keep_steps=True).stages
    assert (kept.max_tokens, kept.rounds, kept.steps) == (600, 2, 6)


def test_from_the_first_weights_each_round_forgets_the_one_before(tmp_path, monkeypatch):
    kept = {}
    search = SearchAndDistilRun.search

    async def noted(self):
        await search(self)
        kept[self.round] = [p.detach().clone() for p in self._trained()]

    monkeypatch.setattr(SearchAndDistilRun, "search", noted)
    train(recipe(tmp_path, "two", start="first"))
    first = kept.copy()
    train(recipe(tmp_path, "on", start="current"))
    assert all(torch.equal(a, b) for a, b in zip(first[0], first[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(kept[0], kept[1], strict=True))


def test_easy_tasks_are_left_out_by_a_test_before_the_search(tmp_path):
    # BFS-Prover's filter: what a plain sample solves already is not searched, and nothing of it is distilled.
    direct = {"kind": "flat", "samples": 2, "sampling": {"max_completion_tokens": 4}}
    guide = {"kind": "search-where-hard", "tests": 2, "hard": 0.0, "easy": "drop", "cached_tasks": 0, "direct": direct}
    train(recipe(tmp_path, "left-out", guidance=[guide], tasks_per_round=12))
    line = metrics(tmp_path, "left-out")[0]
    easy = line["guidance/search-where-hard/easy/tasks"]
    assert easy > 0
    assert line["guidance/search-where-hard/searched/tasks"] == 12 - easy
    assert line["traces/tasks"] <= 12 - easy


def test_a_budget_of_tokens_ends_the_stage_between_two_rounds(tmp_path):
    train(recipe(tmp_path, max_tokens=1))
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3]


def test_what_cannot_work_is_refused_before_a_model_is_loaded(tmp_path):
    with pytest.raises(RecipeError, match=r"steps: got 1 with rounds 2; allowed: at least one step a round"):
        recipe(tmp_path, steps=1)
    with pytest.raises(RecipeError, match=r"the stage has no value model to ask; allowed: a stage with `value`"):
        recipe(tmp_path, value=None)
    with pytest.raises(RecipeError, match=r"traces: got null, and there is no value model to train"):
        recipe(tmp_path, traces=None, value="likelihood")
    with pytest.raises(RecipeError, match=r"objective.kind: got 'ppo-clip'.*allowed: consistency, sft"):
        recipe(tmp_path, objective="ppo-clip")
    with pytest.raises(RecipeError, match=r"value.path: no folder \./nowhere"):
        recipe(tmp_path, value={"kind": "model", "path": "./nowhere"})
