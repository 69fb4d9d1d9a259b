"""Each program in benchmarks/ starts, and measures: it runs with its smallest settings until it says its first figure.

How large the figure is is not looked at. Where a comparison's other side is not installed, lyceum's side runs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import threading
from argparse import Namespace
from functools import cache
from pathlib import Path

import pytest
from warm_python import WarmPython

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SECONDS = 300
"""Of a crowded machine."""
STARTS = {
    "agents.py --quick --parts cost --threads 1": r"one row a request computes [\d.]+ times the tokens",
    "asynchrony.py --quick --parts lengths": r"lengths: .*'trained_to_drawn': [\d.]+",
    "scaling.py --quick --threads 1": r"measured: .*'unpack': [\d.]+",
    "faults.py --quick": (
        r"1/2 fixed, worker loads, step \d: .*'other_bits': 0[\s\S]*"
        r"1/3 fixed, grader loads, step \d: {'kills': [1-9].*'misgraded': 0, 'short': 0, 'other_bits': 0"
    ),
    "runtimes.py --quick": r"1/1 grpo: 2 steps, the same",
    "cascade.py --quick --on chain --jobs 1 --threads 1": r"tokens-cascade-4000-0 took \d+ s",
    "curriculum.py --quick --suites ladder --jobs 1 --threads 1": r"grpo-seed0 took \d+ s",
    "data.py --quick --threads 1": r"lyceum few: .*'peak_mib': \d",
    "engine.py --quick --models small --batches 8 --lengths uniform --rounds 1 --threads 1": r"1 of a prompt: [\d.]+ x",
    "forest.py --quick": r"hinted and grafted, 8 of 400: [\d.]+ us per token",
    "hybrids.py --quick": r"tree takes [\d.]+ of the rows' CPU time",
    "layout.py --quick --models small --pairs 1 --threads 1": r"tree takes [\d.]+ of the rows' time",
    "models.py --quick": r"llama: .* runs trees logprob \d",
    "models.py --quick --runs": r"qwen3_5_text grpo: steps 10 .* resumed_to_the_bit True",
    "mechanisms.py --quick": r"grpo: [\d.]+ s",
    "pictures.py --quick --threads 1": r"tree takes [\d.]+ of the rows' time",
    "pictures.py --quick --threads 1 --on rates": r"rates-quick-base took \d+ s",
    "pictures.py --quick --threads 1 --on questions": r"where at 3e-4: [\d.]+%, then",
    "process_models.py --quick --threads 1": r"sampled \d+ tasks twice",
    "rewards.py --quick --arms verifier --threads 1": r"verifier, seed 0 \(1/1\): .*'every_step_right': \d",
    "sandbox.py --quick": r"(unshare|landlock|bubblewrap|none): .*'alone_1': \d",
    "search.py --quick --models base --values likelihood --threads 1": r"majority .*│ +1 │ +[\d.]+",
    "self_play.py --quick --threads 1": r"spiral at 3\.0e-5, seed 0: exploitability [\d.]+",
    "shares.py --quick": r"dapo: task [\d.]+, overlong",
    "sizes.py --quick --threads 1": r"5M grpo: memory told / measured [\d.]+, disk [\d.]+",
    "cards.py --quick": r"Qwen2\.5-0\.5B, all weights: [\d.]+ GiB",
    "time_left.py --quick --threads 1": r"grpo: told / took [\d.]+ after step 2",
    "stories.py --quick --levels 0 --threads 1": r"level 0: .*\"best_constant\": [\d.]+",
    "structure.py --quick": r"all_lines +\d+",
    "trees.py --quick --models small --suites leaves --pairs 1 --threads 1": r"of the tokens, [\d.]+ of the time",
    "trees.py --quick --suites strategies --threads 1": r"grpo: [\d.]+ right",
    "trees.py --quick --suites learn --arms grpo deepsearch --jobs 1 --threads 1": r"grpo-seed0 took \d+ s",
    "verifiers.py --quick --threads 1": r"lyceum: \d+ answers",
    "leads.py --quick --arms grpo --threads 1": r"grpo at 1e-4, seed 0: [\d.]+%, greedy [\d.]+%",
    "leads.py --quick --world sums --threads 1": r"grpo at 1e-5, seed 0: [\d.]+%, greedy [\d.]+%",
    "tool.py --quick --threads 1": r"before: .*\"alone\"",
    "worlds.py --quick --threads 1": r"rooms, level 4: .*'random': 0\.\d+",
}
"""A command, and how the line of its first figure reads."""


@pytest.mark.parametrize("command", STARTS)
def test_a_benchmark_runs_to_its_first_figure(command, tmp_path):
    said = until(STARTS[command], command.split(), tmp_path)
    assert re.search(STARTS[command], said), said


@cache
def warm() -> WarmPython:
    return WarmPython()


def until(figure: str, command: list[str], cache: Path) -> str:
    """What a benchmark says up to the line with the figure, or to its end; then it and what it started are ended."""
    environment = {"LYCEUM_BENCHMARK_CACHE": str(cache), "COLUMNS": "160"}
    said = []
    with warm().running([str(BENCHMARKS / command[0]), *command[1:]], cache, environment) as (process, lines):
        end = threading.Timer(SECONDS, end_all, (process,))
        end.start()
        for line in lines:
            said.append(line)
            if re.search(figure, line):
                break
        end.cancel()
    return "".join(said)


def end_all(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of it may have ended
        os.killpg(group, signal.SIGKILL)


def test_a_step_of_vs_trls_short_case_is_timed(benchmarks, tmp_path):
    # The side of vs_trl that needs no TRL, as checkouts.py has two of in turns: here there is one.
    common, cases, checkouts = (benchmarks(name) for name in ("common", "cases", "checkouts"))
    case = cases.all_cases(True, common.base_folder("base"), None, tmp_path)[0]
    assert case.name == "short"
    sides = {"before": BENCHMARKS.parent}
    found = checkouts.in_turns("short", "lyceum_worker.py", {"case": case}, sides, tmp_path, warm_up=0, pairs=1)
    assert found["before"][0] > 0


def test_held_out_accuracy_is_measured_by_a_worker(benchmarks):
    common = benchmarks("common")
    worker = common.Worker("evaluation_worker.py", {"tasks": 4, "samples": 2, "max_tokens": 40}, threads=1)
    try:
        found = worker.ask(str(common.base_folder("base")))
    finally:
        worker.end()
    assert 0 <= found["overall"]["low"] <= found["overall"]["mean"] <= found["overall"]["high"] <= 1


def test_a_librarys_function_gives_the_same_through_lyceum(benchmarks, tmp_path, monkeypatch):
    others = benchmarks("others")
    program = "def longer(completions, **columns):\n    return [len(completion) > 9 for completion in completions]\n"
    (tmp_path / "theirs.py").write_text(program)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)  # of another test in this process
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(others.FUNCTIONS, "theirs", [("theirs:longer", {})])
    monkeypatch.setattr(sys, "argv", ["others.py", "--library", "theirs", "--out", str(tmp_path / "found.json")])
    others.main()
    assert '"different": []' in (tmp_path / "found.json").read_text()


def test_the_page_of_models_says_what_was_measured(benchmarks):
    result = json.loads((BENCHMARKS / "results" / "models.json").read_text())
    assert (BENCHMARKS.parent / "docs" / "models.md").read_text() == benchmarks("models").page(result)


def test_every_block_that_the_first_day_copies_is_in_its_page(benchmarks):
    first_day = benchmarks("first_day")
    for page, names in first_day.FILES.items():
        for name in names:
            assert first_day.block(page, name)


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed")
def test_preference_losses_are_those_of_trl(tmp_path):
    said = until(r"value [\d.e-]+ +gradient", ["preferences.py", "--quick"], tmp_path)
    assert re.search(r"value [\d.e-]+ +gradient", said), said


def test_every_benchmark_is_started():
    started = {command.split()[0] for command in STARTS}
    parts = {
        "arms.py",
        "cases.py",
        "common.py",
        "fault_graders.py",
        "forked.py",
        "limits.py",
        "picture_arms.py",
        "picture_questions.py",
        "picture_rates.py",
        "controlled_lengths.py",
        "suites.py",
        "trees_learn.py",
        "world_arms.py",
    }  # of others
    workers = {"engine_worker.py", "evaluation_worker.py", "lyceum_worker.py", "trl_worker.py"}
    in_part = {"checkouts.py", "first_day.py", "others.py", "preferences.py", "vs_trl.py"}  # above
    assert started | parts | workers | in_part == {file.name for file in BENCHMARKS.glob("*.py")}


def test_the_makefile_offers_what_there_is_and_all_of_it_has_quick():
    text = (BENCHMARKS.parent / "Makefile").read_text()
    [names] = re.findall(r"make bench NAME=([\w|]+) OUT=FILE", text)
    for name in names.split("|"):
        source = (BENCHMARKS / f"{name}.py").read_text()
        assert re.search(r"(options|args|given)\.quick", source), f"{name} does not read --quick"


@pytest.fixture
def benchmarks(monkeypatch):
    """A program of benchmarks/ as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "reward"))
    for name in ("others",):  # another file of that name may have been imported, as a user's code is
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    yield importlib.import_module
    for name in {*sys.modules} - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_curve_of_rates_compresses_the_lowest_logits_first(benchmarks):
    rates = benchmarks("picture_rates")
    # Of ten pictures the router keeps the even ones full; compressed, the first five of its order are right.
    logits = [5.0, -5, 4, -4, 3, -3, 2, -2, 1, -1]
    compressed = [logit < 0 for logit in logits]
    found = rates.curve(logits, [True] * 10, compressed, 16, 4)
    assert [line["picture_tokens"] for line in found][:2] == [16, 14.8]
    assert [line["routed"] for line in found] == [1, 1, 1, 1, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.5]
    # At random each compressed picture is wrong half of the time.
    assert [line["random"] for line in found] == [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]


def test_seeds_of_rates_that_are_known_are_not_run_again(benchmarks, monkeypatch):
    rates = benchmarks("picture_rates")
    way = dict.fromkeys(("accuracy", "compressed", "picture_tokens", "cpu_seconds", "wall_seconds"), 0.5)
    run = []
    monkeypatch.setattr(
        rates, "measured", lambda model, seed, questions: run.append(seed) or {"ways": dict.fromkeys(rates.WAYS, way)}
    )
    of_other_sizes = [{"seed": 0, "sizes": rates.QUICK, "questions": 9}, {"seed": 1, "rate": "full"}]
    known = [{"seed": 1, "sizes": rates.SIZES, "questions": 9}]
    kept = []
    rates.run_rates([*of_other_sizes, *known], 3, 9, rates.SIZES, lambda *keys: None, "rates", kept.append)
    assert run == [0, 2]
    assert [row["seed"] for row in kept[-1]] == [0, 1, 2]


def test_pass_at_8_is_of_eight_samples_of_one_question(benchmarks):
    # One correct of 16: 1/16 of the samples, one of two questions. Eight questions of two samples would make it 1/8.
    found = benchmarks("picture_questions").passed([True] + [False] * 15)
    assert found == {"pass_1": 0.0625, "pass_8": 0.5}


@pytest.mark.parametrize(("tasks", "kept"), [({"kind": "pictures", "asks": ["sum"]}, 0), (None, 1)])
def test_rows_of_arms_in_another_setting_are_not_kept(benchmarks, monkeypatch, tasks, kept):
    pictures, arms = benchmarks("pictures"), benchmarks("picture_arms")
    given = []
    monkeypatch.setattr(arms, "run_all", lambda known, *rest: given.append(known))
    before = {"setting": arms.SETTING | ({"tasks": tasks} if tasks else {}), "rows": [{"arm": "grpo"}]}
    options = Namespace(quick=False, arms=(), learning_rates=(), tokens=1, questions=1, seeds=1)
    pictures.on_arms({"arms": before}, options)
    assert [len(known) for known in given] == [kept]
