"""Whole searches with a tiny model: choices without the verifier, costs, failures, going on."""

import json
import os
import signal

import pytest
from agent_fixtures import one_reply
from tiny_models import plain_model, policy_like

import lyceum
from lyceum import RecipeError
from lyceum.analysis.test_time.choice import Candidate, best, weighted_majority
from lyceum.analysis.test_time.run import Valued, grow, measure, unique_tokens
from lyceum.analysis.test_time.strategy import NAMED, Strategy
from lyceum.core.component import kinds
from lyceum.core.types import Grade, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.reward.extract import vote
from lyceum.rollout.mcts import MCTS
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted
from lyceum.value.likelihood import PathLikelihood

POLICY = policy_like(plain_model())
ALL = tuple(NAMED)
SMALL = {"n": 5, "sizes": (1, 4), "max_completion_tokens": 10, "progress": "silent"}
STEPS = {"step.by": "tokens", "step.tokens": 3}


def even(completion):
    return float(sum(map(ord, completion)) % 2 == 0)


def liar(completion):
    return 1 - even(completion)


def search(*, steps=STEPS, **settings):
    return lyceum.search(POLICY, "chain", **SMALL | steps | {"reward": even} | settings)


def answers(folder, name):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_what_is_chosen_does_not_depend_on_the_verifier(tmp_path):
    honest, lied = search(output=tmp_path / "honest"), search(reward=liar, output=tmp_path / "lied")
    for a, b in zip(honest["results"], lied["results"], strict=True):
        name = f"{a['strategy']}-{a['size']}"
        for one, other in zip(answers(tmp_path / "honest", name), answers(tmp_path / "lied", name), strict=True):
            assert one["chosen"] == other["chosen"], name
            assert one["nodes"] == other["nodes"], name
            texts, verdicts = ([t[key] for t in one["trajectories"]] for key in ("completion", "right"))
            assert texts == [t["completion"] for t in other["trajectories"]]
            assert verdicts == [not t["right"] for t in other["trajectories"]], "the lie was told"
        assert a["accuracy"]["mean"] == pytest.approx(1 - b["accuracy"]["mean"])
    assert {result["strategy"] for result in honest["results"]} == set(ALL)
    assert any(result["accuracy"]["mean"] not in (0, 1) for result in honest["results"])


def test_every_strategy_has_its_figures_and_costs(tmp_path):
    found = search(output=tmp_path)
    results = {(result["strategy"], result["size"]): result for result in found["results"]}
    assert set(results) == {(kind, size) for kind in ALL for size in (1, 4) if kind != "greedy" or size == 1}
    for (kind, size), result in results.items():
        assert result["tasks"] == 5
        assert result["pass_oracle"]["mean"] >= result["accuracy"]["mean"]
        assert 0 < result["tokens_spent"] == result["tokens_computed"]
        assert result["tokens_sampled"] > 0
        # All values are low here: the filter leaves one sample of each task.
        assert result["trajectories"] >= (1 if kind == "filtered-majority" else min(size, 4)), kind
        assert set(result["by_level"]) == {"1", "2", "3", "4", "5"}
    # One sample is one sample, whoever chooses it; four cost more.
    one = {kind: results[kind, 1]["accuracy"]["mean"] for kind in ("majority", "best-of-n", "weighted-majority")}
    assert len(set(one.values())) == 1
    assert results["majority", 4]["tokens_computed"] == results["best-of-n", 4]["tokens_computed"]
    assert results["majority", 4]["tokens_computed"] > results["majority", 1]["tokens_computed"]
    # Four samples of 10 tokens at most, those of a size being the first of a larger one's.
    assert results["majority", 4]["tokens_sampled"] <= 40
    texts = [[t["completion"] for t in row["trajectories"]] for row in answers(tmp_path, "majority-4")]
    assert [row["trajectories"][0]["completion"] for row in answers(tmp_path, "majority-1")] == [t[0] for t in texts]
    assert json.loads((tmp_path / "search.json").read_text()) == found.to_json()
    assert (tmp_path / "search.png").stat().st_size > 1000
    assert found["at_equal_tokens"]
    budgets = [row["tokens"] for row in found["at_equal_tokens"]]
    assert budgets == sorted(budgets)


def test_a_rollout_that_only_the_verifier_can_lead_is_refused():
    with pytest.raises(ValueError, match="got 'rethink-mcts', which the verifier leads"):
        Strategy.model_validate({"rollout": "rethink-mcts"})


# The verifier leads the first; the second prunes turns that are cut, as all of ten tokens are here.
@pytest.mark.parametrize("kind", sorted(kinds("rollout").keys() - {"rethink-mcts", "dialogue-tree"}))
def test_every_rollout_finds_the_candidates_asked_for_and_is_charged_for_all_it_takes(kind, monkeypatch):
    happened, drawn, read = [], [], []
    value = PathLikelihood(1.0)

    class Engine(EmbeddedEngine):
        async def extend(self, request):
            found = await super().extend(request)
            drawn.extend(len(continuation.tokens) for continuation in found)
            return found

    def valued(paths):
        read.append(unique_tokens([path.path_tokens() for path in paths]))
        return value(paths)

    async def graded(task, leaves, context):
        happened.append("graded")
        return [Grade(even(leaf.completion)) for leaf in leaves]

    def choose(candidates):
        happened.append("chosen")
        return best(candidates)

    monkeypatch.setattr("lyceum.analysis.test_time.run.CHOICES", {"best": choose})
    source = kinds("tasks")["chain"]().build("heldout", 0)
    own = {"value-filter": {"threshold": 0}, "agent": {"function": one_reply}}.get(kind, {})
    strategy = Strategy.model_validate({"rollout": {"kind": kind, **own}, "choose": "best"})
    rollout = strategy.sized(4, Sampling(max_completion_tokens=10))

    async def searched():
        tasks = [source[i] for i in range(5)]
        grown = await grow(rollout, POLICY, Engine(POLICY), tasks, Valued(valued, reads=True), seed=0)
        assert happened == []
        return await measure(strategy, 4, grown, graded, {})

    result, answers = run_async(searched())
    assert happened == ["chosen"] * 5 + ["graded"] * 5
    assert result.tokens_sampled == sum(drawn) / 5
    assert result.tokens_valued == sum(read) / 5
    assert result.tokens_computed > 0
    counts = [len(row["trajectories"]) for row in answers]
    # Paths that end together may be a few more.
    most = {"beam": 7, "value-mcts": 7, "best-first": 5}.get(kind, 4)
    assert all(4 <= count <= most for count in counts), counts


def test_a_named_strategy_is_its_rollout_and_choice():
    pair = {"name": "mine", "rollout": MCTS(width=4), "choose": "best"}
    typed = {"rollout": {"kind": "mcts", "width": 2}, "choose": "best"}
    deep = {"mine.depth": 5, "mcts.depth": 5, "mcts-best.depth": 5}
    named, mine, narrow = search(strategies=["mcts", pair, typed], sizes=(4,), **deep)["results"]
    assert (mine["strategy"], narrow["strategy"]) == ("mine", "mcts-best")
    costs = [key for key in named if key not in ("strategy", "seconds")]
    assert [named[key] for key in costs] == [mine[key] for key in costs]
    settings = narrow["settings"]["rollout"]
    assert (settings["width"], settings["depth"], settings["judge"]) == (2, 5, "value")


def test_the_record_says_what_was_chosen_and_why(tmp_path):
    search(strategies=["weighted-majority"], sizes=(4,), output=tmp_path, steps={})
    for row in answers(tmp_path, "weighted-majority-4"):
        found = [Candidate(t["answer"], t["value"]) for t in row["trajectories"]]
        assert row["chosen"] == weighted_majority(found)
        assert [t["answer"] for t in row["trajectories"]] == [vote(t["completion"]) for t in row["trajectories"]]
        for t in row["trajectories"]:
            path = [t["node"]]
            while row["nodes"][path[-1]]["parent"] is not None:
                path.append(row["nodes"][path[-1]]["parent"])
            assert "".join(row["nodes"][node]["text"] for node in path[-2::-1]) == t["completion"]


def test_a_value_model_is_asked_about_each_path_once_and_charged_for_what_it_reads():
    tasks = [Task("t", ({"role": "user", "content": "1+1="},))]
    by_value, by_votes = (Strategy(rollout="flat", choose=choose) for choose in ("best", "majority"))
    rollout = by_value.sized(3, Sampling(max_completion_tokens=4))
    asked = []

    class Counting(PathLikelihood):
        def __call__(self, paths):
            asked.extend(paths)
            return super().__call__(paths)

    async def right(task, leaves, context):
        return [Grade(1.0, True) for _ in leaves]

    async def both():
        grown = await grow(rollout, POLICY, EmbeddedEngine(POLICY), tasks, Valued(Counting(1.0), reads=True), seed=0)
        first, _ = await measure(by_value, 3, grown, right, {})
        again, _ = await measure(by_value, 3, grown, right, {})
        votes, _ = await measure(by_votes, 3, grown, right, {})
        return grown, first, again, votes

    grown, first, again, votes = run_async(both())
    assert len(asked) == 3
    paths = [leaf.path_tokens() for leaf in grown.trees[0].trajectories]
    read = len({tuple(path[: end + 1]) for path in paths for end in range(len(path))})
    assert (first.tokens_valued, again.tokens_valued, votes.tokens_valued) == (read, read, 0)
    assert first.tokens_spent == first.tokens_computed + read


def test_numbers_that_are_not_all_0_or_1_judge_nothing_as_in_an_evaluation():
    tasks = [Task("t", ({"role": "user", "content": "1+1="},))]
    strategy = Strategy(rollout="flat", choose="majority")
    rollout = strategy.sized(3, Sampling(max_completion_tokens=4))

    async def measured(*numbers):
        async def scores(task, leaves, context):
            return [Grade(number) for number, _ in zip(numbers, leaves, strict=True)]

        value = Valued(PathLikelihood(1.0), reads=False)
        grown = await grow(rollout, POLICY, EmbeddedEngine(POLICY), tasks, value, seed=0)
        result, [row] = await measure(strategy, 3, grown, scores, {})
        return result.any_correct, [each["right"] for each in row["trajectories"]], result.reasons

    # The last sample's 1 is no correct answer beside a 0.5; with 0 and 1 alone it is.
    assert run_async(measured(0.0, 0.5, 1.0)) == ([None], [None, None, None], {"no verdict": 1})
    assert run_async(measured(0.0, 0.0, 1.0))[:2] == ([True], [False, False, True])


def test_what_paths_share_is_read_once_a_call_and_a_lone_one_is_not_asked_about():
    # 1 2 3, 1 2 4 and 1 2: 4 tokens, the last path being the beginning of the others; 2 shares nothing with them.
    assert unique_tokens([[1, 2, 3], [1, 2, 4], [1, 2], [1, 2, 3]]) == 4
    assert unique_tokens([[1, 2, 3], [2, 2, 3]]) == 6
    assert unique_tokens([]) == 0
    lone = search(strategies=["best-of-n"], sizes=(1,), steps={}, output=None)["results"][0]
    assert lone["tokens_valued"] == 0


def test_a_verifier_that_fails_leaves_answers_ungraded_and_never_wrong():
    def fails(completion):
        raise OSError("no verifier today")

    def fails_for_some(completion, prompt):
        if int(prompt[0]) % 2:
            raise OSError("not for this one")
        return 1.0

    results = search(reward=fails, strategies=["majority", "mcts"], sizes=(2,))["results"]
    for result in results:
        assert result["accuracy"] is None
        assert result["pass_oracle"] is None
        assert result["ungraded"] == 5
        assert "no verifier today" in next(iter(result["reasons_ungraded"]))
    some = search(reward=fails_for_some, strategies=["beam"], sizes=(2,), n=12)["results"][0]
    assert 0 < some["ungraded"] < 12
    assert some["accuracy"]["mean"] == 1.0


def test_an_interrupted_search_goes_on_and_ends_as_if_it_had_not_been(monkeypatch, tmp_path):
    whole = search(output=tmp_path / "whole")
    asked = iter([False] * 4)
    with monkeypatch.context() as patch:
        patch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, True))
        with pytest.raises(Interrupted):
            search(output=tmp_path / "parts")
    done = {file: file.stat().st_mtime_ns for file in (tmp_path / "parts").glob("*-*.json")}
    assert len(done) == 4
    found = search(output=tmp_path / "parts")
    assert {file: file.stat().st_mtime_ns for file in done} == done, "what was done is not done again"

    def timeless(metrics):
        return [{key: value for key, value in result.items() if key != "seconds"} for result in metrics["results"]]

    assert timeless(found) == timeless(whole)
    assert found["at_equal_tokens"] == whole["at_equal_tokens"]


def test_two_interrupts_in_the_middle_of_a_cell_lose_that_cell_alone(tmp_path):
    graded = []

    def stops(completion):
        graded.append(completion)
        if len(graded) == 7:  # the second result's second task
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return even(completion)

    three = ["greedy", "beam", "mcts"]
    with pytest.raises(KeyboardInterrupt):
        search(reward=stops, strategies=three, sizes=(2,), output=tmp_path)
    assert sorted(file.name for file in tmp_path.glob("*-*.json*")) == ["greedy-1.json", "greedy-1.jsonl"]
    again = search(reward=stops, strategies=three, sizes=(2,), output=tmp_path)
    assert [result["strategy"] for result in again["results"]] == three
    assert len(graded) > 7


def test_a_finished_search_is_told_again_without_a_model(monkeypatch, tmp_path):
    first = search(output=tmp_path, strategies=["majority"], steps={})
    monkeypatch.setattr("lyceum.analysis.test_time.plan.grow", lambda *_, **__: pytest.fail("searched again"))
    again = search(output=tmp_path, strategies=["majority"], tokens=[7, 30], steps={})
    assert again["results"] == first["results"]
    assert [row["tokens"] for row in again["at_equal_tokens"]] == [7, 30]


def test_a_folder_of_another_search_is_refused(tmp_path):
    search(output=tmp_path, strategies=["beam"], sizes=(4,))
    with pytest.raises(RecipeError, match=r"holds a search with seed 0, now 1; allowed: the same, or another folder"):
        search(output=tmp_path, strategies=["beam"], sizes=(4,), seed=1)
    with pytest.raises(
        RecipeError,
        match=r"beam-4.json was searched with rollout.beams 1 and now 2, rollout.width 4 and now 2; allowed",
    ):
        search(output=tmp_path, strategies=["beam"], sizes=(4,), **{"beam.width": 2})
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match=r"file is a file; allowed: a folder"):
        search(output=tmp_path / "file")


def test_separators_that_never_come_are_noted():
    never = search(strategies=["beam"], **{"step.by": "marker", "step.markers": ["\n\n\n"]})
    assert all(result["trajectories"] >= result["size"] for result in never["results"])
    assert "no trajectory has '\\n\\n\\n' in it: every step but the last is 3 tokens long" in never["notes"][0]


def test_a_budget_smaller_than_any_path_says_nothing_and_is_noted():
    found = search(strategies=["majority", "beam"], tokens=[2])
    assert found["at_equal_tokens"] == [{"tokens": 2.0, "accuracy": {"majority": None, "beam": None}}]
    assert "2 tokens per task are fewer than any search spent" in found["notes"][0]


def test_no_trajectory_is_a_wrong_answer_and_counted():
    # Two nodes of three tokens cannot hold ten tokens, but a path may end before: whoever asks for that is told first.
    with pytest.raises(RecipeError, match=r"mcts: rollout.max_nodes: got 2, but one path may have 4 nodes"):
        search(strategies=["mcts"], **{"mcts.max_nodes": 2})
    found = search(strategies=["mcts"], sizes=(2,), **{"mcts.max_nodes": 4, "mcts.width": 4})["results"][0]
    assert found["unanswered"] > 0
    assert found["ungraded"] == 0
    assert found["accuracy"]["mean"] <= 1 - found["unanswered"] / 5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"strategies": ["beem"]}, r"strategy: got 'beem' \(did you mean 'beam'\?\); allowed: all, beam, best-first, "),
        ({"strategies": []}, r"strategy: got none; allowed: all, or any of beam"),
        (
            {"strategies": [{"rollout": {"kind": "beam", "widht": 2}, "choose": "best"}]},
            r"strategy.0.rollout.widht: unknown key \(did you mean 'width'\?\)",
        ),
        (
            {"strategies": [{"kind": "beam"}]},
            r"strategy: got {'kind': 'beam'}; allowed: a name, or a mapping with rollout and choose",
        ),
        (
            {"strategies": [{"rollout": "beam", "choose": "bset"}]},
            r"strategy.0.choose: got 'bset' \(did you mean 'best'",
        ),
        (
            {"strategies": [{"rollout": 7, "choose": "best"}], "steps": {}},
            r"strategy.0.rollout: got 7; allowed: a kind, ",
        ),
        ({"strategies": [7]}, r"strategy: got 7; allowed: a name, or a mapping with rollout and choose"),
        (
            {"strategies": ["beam", {"name": "beam", "rollout": "flat", "choose": "first"}]},
            r"strategy: got 'beam' twice; allowed: each name once",
        ),
        (
            {"mcts.judge": "verifier"},
            r"rollout: got judge 'verifier', but the verifier is asked only after the choice; allowed: for example "
            r"judge 'value'",
        ),
        (
            {"strategies": [{"rollout": {"kind": "best-first", "until_right": True}, "choose": "first"}]},
            r"strategy.0.rollout: got until_right True, but the verifier",
        ),
        (
            {"strategies": [{"rollout": "critical-tokens", "choose": "majority"}], "steps": {}},
            r"critical-tokens-majority: size 1: rollout.samples: got 1; allowed: 2 or more",
        ),
        (
            {"value": None, "strategies": ["majority", "beam", "dvts"]},
            r"value: got none, but beam, dvts read values; allowed: goal-conditioned, implicit, likelihood, model",
        ),
        ({"value": None, "strategies": ["mcts"], "mcts.judge": "agreement"}, r"value: got none, but mcts reads values"),
        (
            {"value": "likelyhood"},
            r"value: got 'likelyhood' \(did you mean 'likelihood'\?\); allowed: none, goal-conditioned, implicit",
        ),
        ({"value.length_power": 2}, r"value.length_power: got 2; "),
        ({"sizes": (0,)}, r"sizes.0: got 0; "),
        ({"sizes": ()}, r"sizes: got \(\); "),
        ({"tokens": (-1,)}, r"tokens.0: got -1; "),
        ({"strategies": ["greedy"], "beam.width": 2}, r"beam: got settings, but the strategies are greedy"),
        ({"strategies": ["greedy"]}, r"step: got settings, but none of greedy goes step by step"),
        ({"beam.depth": 0}, r"strategy.0.rollout.depth: got 0; "),
        ({"n": 0}, r"n: got 0; allowed: 1 or more"),
    ],
)
def test_what_cannot_work_is_refused(settings, said):
    with pytest.raises(RecipeError, match=said):
        search(**settings)


def test_without_values_strategies_that_need_none_still_run():
    votes = {"mcts.judge": "agreement", "mcts.choose": "majority"}
    found = search(value=None, strategies=["majority", "mcts"], sizes=(2,), **votes)
    assert [result["tokens_valued"] for result in found["results"]] == [0, 0]


def test_of_all_strategies_those_that_need_no_values_run_without():
    found = search(value=None, strategies=["all"], sizes=(2,))
    assert {result["strategy"] for result in found["results"]} == {"greedy", "majority"}


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="holds other files than a search's"):
        search(output=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
