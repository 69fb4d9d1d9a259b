"""``lyceum search`` as a command: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pytest

from lyceum.cli import main

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = ["search", "scratch", "--tasks", "chain", "tasks.levels=[1,2]", "--n", "4", "--max-tokens", "8"]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_search_shows_strategies_side_by_side_and_writes_figures_plot_and_answers(capsys, tmp_path):
    argv = [*TINY, "--sizes", "1,2", "--strategy", "majority,beam", "--strategy", "greedy", "--output", "found"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    for word in ("majority", "beam", "greedy", "pass@n", "accuracy by level", "accuracy at equal tokens"):
        assert word in out
    assert "plot     found/search.png" in out
    assert len((tmp_path / "found/majority-2.jsonl").read_text().splitlines()) == 4
    assert main([*argv, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["path"] == "found"
    assert metrics["value"] == {"kind": "likelihood", "length_power": 1.0}
    assert [(result["strategy"], result["size"]) for result in metrics["results"]] == [
        ("majority", 1), ("beam", 1), ("greedy", 1), ("majority", 2), ("beam", 2),
    ]  # fmt: skip


def test_a_strategy_can_be_typed_as_a_rollout_and_a_choice(capsys):
    typed = "{rollout: {kind: segments, segment_tokens: 3, first_branches: [1, 2]}, choose: majority}"
    argv = [*TINY, "--sizes", "2", "--strategy", typed, "--strategy", "majority", "segments-majority.branches=3"]
    assert main([*argv, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(each["strategy"], each["trajectories"]) for each in results] == [("segments-majority", 2), ("majority", 2)]
    rollout = results[0]["settings"]["rollout"]
    assert (rollout["kind"], rollout["segment_tokens"], rollout["branches"]) == ("segments", 3, 3)


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    asked = iter([False, True])
    monkeypatch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, False))
    argv = [*TINY, "--strategy", "majority", "--sizes", "1,2", "--output", "found", "--json"]
    assert main(argv) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == ["finished results are kept in found; the same command resumes from there"]
    assert document["path"] == "found"
    assert main(argv) == 0
    assert [result["size"] for result in json.loads(capsys.readouterr().out)["results"]] == [1, 2]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["--strategy", "beem"],
            "strategy: got 'beem' (did you mean 'beam'?); allowed: all, beam, best-first, best-of-n, ",
        ),
        (["--strategy", "{rollout: mcts"], "strategy: got '{rollout: mcts', which is not YAML"),
        (["--sizes", "1,many"], "--sizes: got '1,many'; allowed: numbers with commas between them"),
        (["--sizes", "0"], "sizes.0: got 0"),
        (["--tokens", "few"], "--tokens: got 'few'"),
        (
            ["--value", "none", "--strategy", "beam"],
            "value: got none, but beam reads values; allowed: goal-conditioned, implicit, likelihood",
        ),
        (["--value", "no-such-folder"], "value: got 'no-such-folder'; allowed: none, goal-conditioned, implicit"),
        (["--n", "0"], "n: got 0; allowed: 1 or more"),
        (["beam.widht=3"], "strategy.0.rollout.widht: unknown key (did you mean 'width'?)"),
        (["tasks.levls=[1]"], "tasks.levls: unknown key (did you mean 'levels'?)"),
        (["--tasks", "empty.jsonl"], "empty.jsonl"),
    ],
)
def test_what_cannot_work_is_said_before_a_model_loads(argv, said, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("lyceum.analysis.measure.load_policy", lambda *_: pytest.fail("a model was loaded"))
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["search", "scratch", "--tasks", "chain", *argv, "--output", "found"]) == 2
    out, err = capsys.readouterr()
    assert said in " ".join((out + err).split())
    assert not (tmp_path / "found").exists()
