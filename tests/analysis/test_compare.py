"""Comparisons of run folders that are written here, figure by figure."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lyceum.analysis.comparison.result import PAIRED_SEEDS, TASKS_ALONE, compare
from lyceum.analysis.comparison.show import cost_table, levels_table, table
from lyceum.analysis.plots import spread
from lyceum.run.reader import read_run_folder
from lyceum.utils.errors import RecipeError


def _interval(mean, arm=0.02):
    return {"mean": mean, "low": mean - arm, "high": mean + arm}


def _run(root: Path, recipe, seed, final, curve=((1000, 0.3), (2000, 0.5)), **summary) -> Path:
    """A finished run: before 0.1, ``curve`` of (tokens sampled, held-out accuracy)."""
    folder = root / f"{recipe}-{seed}"
    folder.mkdir(parents=True)
    lines = [
        {"step": i + 1, "tokens_sampled": tokens, "heldout/overall": accuracy}
        for i, (tokens, accuracy) in enumerate(curve)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {
        "recipe": recipe,
        "seed": seed,
        "before": {"overall": _interval(0.1)},
        "after": {
            "overall": _interval(final),
            "by_level": {"2": _interval(final - 0.1), "10": _interval(0.05)},
            "tasks": 50,
        },
        "tokens_sampled": 2000,
        "tokens_trained": 1500,
        "seconds": {"generate": 6.0, "train": 4.0},
        "finished": True,
    }
    (folder / "summary.json").write_text(json.dumps(given | summary))
    return folder


def _rendered(what) -> str:
    console = Console(file=io.StringIO(), width=240)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_steady_gain_over_paired_seeds_wins(tmp_path):
    # Seeds differ by 0.2, recipes by 0.09, 0.10, 0.11 within each: only pairing sees it.
    # sd 0.01, t_2 = 4.303: 0.10 -/+ 4.303 * 0.01 / sqrt(3) = 0.0248
    runs = [_run(tmp_path, "a", seed, final) for seed, final in enumerate([0.4, 0.5, 0.6])]
    runs += [_run(tmp_path, "b", seed, final, tokens_sampled=3000) for seed, final in enumerate([0.49, 0.6, 0.71])]
    found = compare(runs)
    difference = found.recipes[1].difference
    assert difference is not None
    assert (difference.basis, difference.seeds) == (PAIRED_SEEDS, 3)
    assert (difference.interval.low, difference.interval.high) == pytest.approx((0.0752, 0.1248), abs=1e-4)
    assert found.sentence == (
        "b reaches 60.0 % held-out, 10.0 points more than a's 50.0 % (95 % interval +7.5 to +12.5, 3 paired seeds on "
        "these tasks), at 1.50 times the sampled tokens and 1.00 times the seconds of a."
    )


def test_a_difference_whose_interval_includes_0_is_no_win(tmp_path):
    # differences +0.2, -0.1, +0.05: mean 0.05, sd 0.15
    runs = [_run(tmp_path, "a", seed, 0.5) for seed in range(3)]
    runs += [_run(tmp_path, "b", seed, final) for seed, final in enumerate([0.7, 0.4, 0.55])]
    sentence = compare(runs).sentence
    assert sentence.startswith("No winner is shown: b reaches 55.0 % held-out and a 50.0 %")
    assert "includes 0" in sentence


def test_runs_that_end_equal_on_every_seed_are_said_to(tmp_path):
    runs = [_run(tmp_path, recipe, seed, final) for recipe in "ab" for seed, final in enumerate([0.5, 0.7])]
    sentence = compare(runs).sentence
    assert "a reaches 60.0 % held-out and b 60.0 %, and they end equal on each of 2 paired seeds" in sentence


def test_the_first_recipe_may_win_and_the_sign_is_its_own(tmp_path):
    runs = [_run(tmp_path, "a", seed, final) for seed, final in enumerate([0.6, 0.61])]
    runs += [_run(tmp_path, "b", seed, final) for seed, final in enumerate([0.3, 0.31])]
    found = compare(runs)
    assert found.recipes[1].difference.interval.mean == pytest.approx(-0.3)  # type: ignore[union-attr]
    assert found.sentence.startswith("a reaches 60.5 % held-out, 30.0 points more than b's 30.5 %")


def test_one_seed_says_that_luck_is_left_out(tmp_path):
    # 0.5 to 0.6 with arms of 0.02: 0.1 -/+ 0.02 * sqrt(2)
    found = compare([_run(tmp_path, "a", 0, 0.5), _run(tmp_path, "b", 0, 0.6)])
    difference = found.recipes[1].difference
    assert difference is not None
    assert difference.basis == TASKS_ALONE
    assert difference.interval.low == pytest.approx(0.1 - 0.0282843)
    assert "one seed each, which leaves out the luck of the seed" in found.sentence


def test_the_best_of_many_is_said_to_be_picked_after_the_fact(tmp_path):
    runs = [_run(tmp_path, name, 0, final) for name, final in (("a", 0.3), ("b", 0.5), ("c", 0.7))]
    assert "best of 3 after the fact" in compare(runs).sentence


def test_tokens_to_reach_the_first_recipes_final_accuracy(tmp_path):
    # a ends at 0.5 and stands there first after 2000 tokens. b: 0.4 at 800, 0.6 at 1000: 0.5 at 900. c never.
    found = compare(
        [
            _run(tmp_path, "a", 0, 0.5, curve=((1000, 0.3), (2000, 0.5))),
            _run(tmp_path, "b", 0, 0.6, curve=((800, 0.4), (1000, 0.6))),
            _run(tmp_path, "c", 0, 0.4, curve=((1000, 0.3), (9000, 0.45))),
        ]
    )
    assert [metrics.tokens_ratio for metrics in found.recipes] == [1.0, pytest.approx(0.45), None]
    assert "not reached" in _rendered(cost_table(found))


def test_seeds_that_agree_do_not_hide_the_doubt_over_tasks(tmp_path):
    # Over seeds the spread is 0; each run's own interval over tasks has arms of 0.02.
    found = compare([_run(tmp_path, "a", seed, 0.5) for seed in range(3)])
    assert (found.recipes[0].final.low, found.recipes[0].final.high) == pytest.approx((0.48, 0.52))
    assert "nothing to compare it with" in found.sentence


def test_a_share_over_seeds_stays_below_one(tmp_path):
    found = compare([_run(tmp_path, "a", seed, final) for seed, final in enumerate([0.98, 0.8])])
    assert found.recipes[0].final.high == 1.0


def test_tables_json_and_plot_are_written(tmp_path):
    found = compare([_run(tmp_path, recipe, seed, 0.5) for recipe in "ab" for seed in range(2)])
    levels = _rendered(levels_table(found))
    assert levels.index(" 2 ") < levels.index(" 10 ")  # by value, not by letter
    assert "2 k" in _rendered(cost_table(found))
    assert found.sentence.split()[0] in _rendered(table(found))
    written = found.write(tmp_path / "out")
    assert [path.name for path in written] == ["comparison.json", "comparison.png"]
    assert json.loads(written[0].read_text())["recipes"][1]["difference"]["basis"] == PAIRED_SEEDS
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_levels_of_many_recipes_stand_in_columns(tmp_path):
    found = compare([_run(tmp_path, recipe, 0, 0.5) for recipe in "abcde"])
    lines = _rendered(levels_table(found)).splitlines()
    assert [next(line for line in lines if f" {recipe} " in line).split()[3:-1:2] for recipe in "ae"] == [
        ["40.0", "5.0"]
    ] * 2


def test_labels_are_spread_around_where_they_belong():
    # 5 and 5 with a gap of 2: 4 and 6. 9.5 alone stays; 9 and 10 above 10 do not fit: 8 and 10.
    assert spread([5, 5], gap=2, low=0, high=10) == [4, 6]
    assert spread([1, 9.5], gap=2, low=0, high=10) == [1, 9.5]
    assert spread([9, 10], gap=2, low=0, high=10) == [8, 10]
    assert spread([0, 0, 0], gap=2, low=0, high=10) == [0, 2, 4]


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="not finished"):
        compare([_run(tmp_path, "a", 0, 0.5, finished=False)])


def test_one_recipe_and_seed_twice_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="got recipe 'a' with seed 0 twice"):
        compare([_run(tmp_path / "x", "a", 0, 0.5), _run(tmp_path / "y", "a", 0, 0.5)])


def test_different_held_out_sets_are_noted(tmp_path):
    other = {"overall": _interval(0.5), "tasks": 20}
    notes = compare([_run(tmp_path, "a", 0, 0.5), _run(tmp_path, "b", 0, 0.5, after=other)]).notes
    assert notes == ["The runs were evaluated with different numbers of held-out tasks (20, 50)."]


def test_a_line_that_is_still_being_written_is_left_out_and_said(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": NaN, "entropy": 0.5}\n{"step": 2, "lo')
    run = read_run_folder(tmp_path)
    assert run.metrics == [{"step": 1, "loss": None, "entropy": 0.5}]
    assert any("still being written" in note for note in run.notes)
    assert any("Not a finite number" in note and "loss" in note for note in run.notes)


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(RecipeError, match=r"metrics.jsonl, line 2: not JSON"):
        read_run_folder(tmp_path)


def test_who_learnt_nothing_is_named_in_the_table_and_in_a_note(tmp_path):
    idle = {"learnt": False, "nothing_learnt": ["nothing was learnt: every reward was 0"]}
    runs = [_run(tmp_path, "a", seed, 0.5, learnt=True, nothing_learnt=[]) for seed in range(2)]
    runs += [_run(tmp_path, "b", seed, 0.1, **(idle if seed else {})) for seed in range(2)]
    runs += [_run(tmp_path, "c", seed, 0.1, **idle) for seed in range(2)]
    found = compare(runs)
    shown = _rendered(table(found))
    assert [shown.count(said) for said in ("(nothing learnt by 1)", "(nothing learnt)")] == [1, 1]
    assert [note for note in found.notes if "nothing" in note] == [
        f"{name}: nothing was learnt: every reward was 0" for name in ("b-1", "c-0", "c-1")
    ]
    assert not found.learnt_nothing
    assert compare(runs[-2:]).learnt_nothing


def test_a_name_may_have_dollars_in_it(tmp_path):
    # matplotlib reads mathematics between two of them, and raises where it is none.
    found = compare([_run(tmp_path, r"$\no_$", 0, 0.5), _run(tmp_path, "b", 0, 0.5)])
    assert found.write(tmp_path)[1].stat().st_size > 0
