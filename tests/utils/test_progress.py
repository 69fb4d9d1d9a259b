import contextlib
import io
import json
import os
import random
import re
import signal
import threading
import time

import pytest
from rich.console import Console

from lyceum.utils import progress
from lyceum.utils.interrupts import Interrupts
from lyceum.utils.progress import Progress, clock, duration, track, using


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(file: io.StringIO, width: int = 100) -> Console:
    return Console(file=file, width=width, highlight=False)


@pytest.fixture
def now(monkeypatch):
    """A clock that the test moves."""
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_log_gets_a_line_every_few_seconds_without_control_characters(now):
    out = io.StringIO()
    with Progress(100, title="grpo", console=shown(out)) as shown_progress:
        assert shown_progress.mode == "plain"
        for step in range(1, 101):
            for i in range(64):
                shown_progress.phase("generating", i, 64)
            now[0] += 0.5
            metrics = {"reward/mean": step / 100, "tokens_per_second": 12345.6}
            shown_progress.step(step, metrics | ({"heldout/overall": 0.5} if step == 3 else {}))
    lines = out.getvalue().splitlines()
    # 50 s of steps: the first step's line, one every 5 s after it, and the last.
    assert len(lines) == 1 + 9 + 1
    assert lines[0] == "grpo: step 1/100, reward 0.010, 12 346 tokens/s, generating 63/64, 0:50 left"
    assert "step 11/100, reward 0.110, held-out 50.0 % (step 3), 12 346 tokens/s" in lines[1]
    assert lines[-1].endswith("done, 0:50 in all")
    assert re.fullmatch(r"[ -~\n]*", out.getvalue())


def test_time_left_counts_only_the_steps_since_the_resumption(now):
    with Progress(100, done=90, mode="silent") as resumed:
        assert resumed.seconds_left is None
        now[0] = 8
        resumed.step(92)
        # 2 steps in 8 s leave 8 steps, 32 s. Counting the 90 before would give 92 in 8 s: less than a second.
        assert resumed.seconds_left == 32


def test_time_left_counts_neither_loading_nor_the_evaluation_before_and_adds_those_to_come(now):
    with Progress(80, mode="silent") as some:
        now[0] = 20  # loading
        with some.apart("evaluation", 100):
            now[0] = 30
        # 100 completions at the end, and 40 between, after step 40: a tenth of a second each.
        some.to_come = lambda done, last: {"evaluation": 40.0 * (done < 40 <= last)}
        some.at_end = {"evaluation": 100.0}
        some.steps_begin()
        assert some.seconds_left is None  # before a step was measured
        now[0] += 0.5
        some.step(1)
        assert some.seconds_left == 79 * 0.5 + 4 + 10
        now[0] += 19.5
        some.step(40)
        with some.apart("evaluation", 40):
            now[0] += 8
        # The evaluation is in no step's time, and the next completions are priced like these: a fifth of a second.
        assert some.seconds_left == 40 * 0.5 + 20
        now[0] += 20
        some.step(80)
        with some.apart("evaluation", 100):
            now[0] += 3
            assert some.seconds_left == 17


def test_the_first_step_warms_up_and_is_no_measure_of_the_others(now):
    with Progress(12, mode="silent") as some:
        now[0] = 9
        some.step(1)
        assert some.seconds_left == 11 * 9  # nothing else was measured
        now[0] += 1
        some.step(2)
        assert some.seconds_left == 10 * 1
        now[0] += 0.25  # a quarter of the next is done, and what is left does not grow while it lasts too long
        assert some.seconds_left == 9.75
        now[0] += 60
        assert some.seconds_left == 9


def test_steps_that_become_longer_are_measured_by_the_last_of_them(now):
    with Progress(200, mode="silent") as some:
        for step in range(1, 101):
            now[0] += 1 if step <= 60 else 3
            some.step(step)
        assert some.seconds_left == 100 * 3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longer", [-0.2, 0.0, 0.25], ids=["shorter", "alike", "longer"])
def test_after_the_second_step_the_time_told_is_within_a_fifth_of_what_a_run_then_takes(seed, longer, now):
    # 60 steps of a second, give or take a tenth, whose completions become longer or shorter; a first step of four; two
    # evaluations of 100 completions and two checkpoints on the way; 200 completions before and after.
    draw, steps = random.Random(seed), 60

    def evaluated(some, completions):
        with some.apart("evaluation", completions):
            now[0] += 0.05 * completions * draw.uniform(0.9, 1.1)

    with Progress(steps, mode="silent") as some:
        now[0] = 20  # loading
        evaluated(some, 200)
        due = range(20, steps, 20)
        some.to_come = lambda done, last: {
            "evaluation": 100 * sum(done < at <= last for at in due),
            "saving": sum(done < at <= last for at in due),
        }
        some.at_end = {"saving": 1, "evaluation": 200}
        some.steps_begin()
        for step in range(1, steps + 1):
            now[0] += (4 if step == 1 else 1 + longer * step / steps) * draw.uniform(0.9, 1.1)
            if step in due:
                evaluated(some, 100)
            some.step(step)
            if step == 2:
                told, at = some.seconds_left, now[0]
            if step in due:
                with some.apart("saving"):
                    now[0] += 0.5
        now[0] += 1
        evaluated(some, 200)
    assert 0.8 <= told / (now[0] - at) <= 1.2


def test_of_a_stage_that_has_not_begun_no_time_is_told(now):
    out = io.StringIO()
    with Progress(30, title="run", console=shown(out)) as some:
        some.stage = "sft"
        some.steps_begin(until=10)
        for step in (1, 2):
            now[0] += 2
            some.step(step)
        assert (some.seconds_left, some.stage_seconds_left) == (None, 16)
        some.phase("training")
        now[0] += 6
        some.phase("training")
        assert out.getvalue().splitlines()[-1].endswith("0:14 left of sft")
        now[0] += 10
        some.step(10)
        some.stage = "online"
        some.steps_begin()
        assert some.seconds_left is None  # the steps of sft say nothing of these
        now[0] += 5
        some.step(11)
        assert some.seconds_left == 19 * 5


def test_tasks_that_are_done_together_are_measured_by_all_the_time_since_the_beginning(now):
    with Progress(8, title="evaluating", unit="task", mode="silent") as some:
        now[0] = 10
        for task in (1, 2, 3, 4):
            some.step(task)
        assert some.seconds_left == 10


def test_a_terminal_is_redrawn_at_most_eight_times_a_second(now, monkeypatch):
    out = Terminal()
    with Progress(1, console=Console(file=out, width=80, force_terminal=True)) as live:
        assert live.mode == "live"
        assert live._live is not None
        drawn = []
        monkeypatch.setattr(live._live, "refresh", lambda: drawn.append(now[0]))
        for i in range(128):
            live.phase("generating", i, 128)
            now[0] += 1 / 64
        assert len(drawn) == 1 + 15  # at once, because the phase is new; then in 127/64 s each 1/8 s


def test_a_new_phase_is_drawn_at_once_unless_phases_race(now, monkeypatch):
    with Progress(1, mode="live", console=Console(file=Terminal(), width=80, force_terminal=True)) as live:
        assert live._live is not None
        drawn = []
        monkeypatch.setattr(live._live, "refresh", lambda: drawn.append(live._phase))
        live.phase("generating")
        now[0] += 1 / 64
        live.phase("training")  # and then not a word for a minute: the display must not go on saying generating
        assert drawn == ["generating", "training"]
        now[0] += 60
        drawn.clear()
        for _ in range(512):  # a phase each 1/1024 s, for half a second
            live.phase("generating" if live._phase == "training" else "training")
            now[0] += 1 / 1024
        assert len(drawn) <= 8 + 4 + 4  # the burst, its refill in half a second, and the regular ones


def test_a_narrow_terminal_gets_two_lines_all_the_same(now):
    out = Terminal()
    with Progress(12, title="grpo", console=Console(file=out, width=40, force_terminal=True)) as live:
        live.step(3, {"reward/mean": 0.5, "heldout/overall": 0.25, "tokens_per_second": 123456})
        live.phase("generating", 1, 2)
        lines = live.console.render_lines(live._display(), live.console.options)
    text = ["".join(segment.text for segment in line) for line in lines]
    assert len(text) == 2
    assert "step 3/12" in text[0]
    assert text[1].rstrip() == "reward 0.500   generating 1/2"  # other metrics give way, what is done now does not
    assert all(len(line.rstrip()) <= 36 for line in text)  # and room is left for the ^C that the terminal echoes


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_figure_that_was_not_measured_keeps_the_one_before(value, now):
    out = io.StringIO()
    with Progress(9, console=shown(out)) as some:
        some.step(1, {"reward/mean": 0.25})
        some.step(2, {"reward/mean": value})
    assert "step 2/9, reward 0.250, stopped" in out.getvalue()


def test_without_a_reward_the_loss_is_shown(now):
    out = io.StringIO()
    with Progress(1, console=shown(out)) as tuning:
        tuning.step(1, {"loss": 1.23456})
    assert "loss 1.235" in out.getvalue()


def test_a_stage_does_not_show_what_another_measured(now):
    out = io.StringIO()
    with Progress(2, console=shown(out)) as some:
        some.step(1, {"loss": 1.5, "tokens_sampled": 0, "tokens_per_second": 9000.0, "heldout/overall": 0.5})
        some.steps_begin()
        some.step(2, {"reward/mean": 0.25})
    assert "step 2/2, reward 0.250, held-out 50.0 % (step 1), done" in out.getvalue()


def test_silent_is_silent_and_reaches_what_is_called_inside():
    out = Terminal()
    with using("silent"):
        with Progress(2, console=shown(out)) as silent:
            silent.say("hello")
            silent.step(2)
        assert list(track(range(3), "evaluating", console=shown(out))) == [0, 1, 2]
    assert out.getvalue() == ""
    assert Progress(1, console=shown(out)).mode == "live"  # and ends with the block


def test_an_exception_says_stopped(now):
    out = io.StringIO()
    with contextlib.suppress(KeyError), Progress(1, console=shown(out)) as failing:
        failing.step(1)
        raise KeyError
    assert out.getvalue().splitlines()[-1].endswith("stopped, 0:00 in all")
    assert progress._active is None


def test_tracking_inside_a_progress_is_its_phase(now):
    out = io.StringIO()
    with Progress(9, console=shown(out)) as outer:
        for _ in track(iter("abc"), "evaluating", total=3):
            now[0] += 5
    lines = out.getvalue().splitlines()
    assert [line.split(", ")[1] for line in lines] == [f"evaluating {i}/3" for i in (1, 2, 3)] + ["stopped"]
    assert outer is not progress._active


def test_tracking_counts_where_nobody_knows_how_many(now):
    out = io.StringIO()
    for _ in track(iter("ab"), "reading", console=shown(out)):
        now[0] += 6
    assert out.getvalue().splitlines() == ["reading: 1", "reading: 2", "reading: 2, done, 0:12 in all"]


def test_leaving_a_tracked_loop_early_ends_the_display(now):
    items = track(range(3), "evaluating", console=shown(io.StringIO()))
    for _ in items:
        break
    items.close()  # type: ignore[attr-defined]
    assert progress._active is None


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_clocks(seconds, text):
    assert clock(seconds) == text


# -- interrupts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_remembered_and_the_second_raises(number, capfd):
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert not interrupts.interrupted()
        os.kill(os.getpid(), number)
        assert interrupts.interrupted()
        assert interrupts.received == number
        assert "stopping after this step" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_display_says_that_it_is_stopping(now):
    out = io.StringIO()
    with Interrupts(), Progress(9, mode="plain", console=shown(out)) as some:
        signal.raise_signal(signal.SIGINT)
        some.phase("training")
        now[0] += 5
        some.step(1)
        assert "training (stopping after this step)" in out.getvalue()


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert not interrupts.interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_changes_no_handler():
    before = signal.getsignal(signal.SIGINT)
    found = []

    def enter():
        with Interrupts() as interrupts:
            found.append((signal.getsignal(signal.SIGINT), interrupts.interrupted()))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [(before, False)]


# -- inside a phase -----------------------------------------------------------------------------------------------


def test_a_long_generation_tells_its_sequences_tokens_speed_and_what_is_left(now):
    out = io.StringIO()
    with Progress(9, title="grpo", console=shown(out)) as some:
        some.phase("generating", 0, 2)
        progress.sampled(sequences=8)
        for _ in range(10):  # of 8 tokens a second
            now[0] += 1
            progress.sampled(tokens=8)
        assert out.getvalue().splitlines() == [
            "grpo: step 0/9, generating 0/2 (0/8 sequences, 40 tokens, 8 tokens/s)",
            "grpo: step 0/9, generating 0/2 (0/8 sequences, 80 tokens, 8 tokens/s)",
        ]
        progress.sampled(ended=8)
        some.phase("training")
        some.phase("generating", 0, 2)
        progress.sampled(sequences=8)
        out.truncate(0)
        out.seek(0)
        for _ in range(5):
            now[0] += 1
            progress.sampled(tokens=4)
        # 10 tokens a sequence last time: 80 - 20 are left, at 4 a second.
        assert out.getvalue() == (
            "grpo: step 0/9, generating 0/2 (0/8 sequences, 20 tokens, 4 tokens/s, about 0:15 left)\n"
        )


def test_grades_that_are_waited_for_are_counted(now):
    out = io.StringIO()
    with Progress(9, console=shown(out)) as some:
        some.phase("generating", 0, 2)
        progress.sampled(sequences=4, to_grade=2)
        progress.sampled(ended=4, to_grade=2, graded=1)
        now[0] += 5
        progress.sampled(graded=1)
        assert out.getvalue() == "training: step 0/9, generating 0/2 (4/4 sequences, 0 tokens, 2/4 graded)\n"


def test_a_terminal_keeps_its_three_lines_once_something_was_sampled(now):
    with Progress(12, title="grpo", console=Console(file=Terminal(), width=80, force_terminal=True)) as live:
        live.phase("generating", 1, 2)
        progress.sampled(sequences=4, tokens=1234)
        now[0] += 2
        lines = live.console.render_lines(live._display(), live.console.options)
        assert "".join(segment.text for segment in lines[2]).rstrip() == "0/4 sequences, 1 234 tokens, 617 tokens/s"
        live.phase("training")
        assert len(live.console.render_lines(live._display(), live.console.options)) == 3


def test_without_a_display_counting_does_nothing():
    assert progress._active is None
    progress.sampled(sequences=1, tokens=1)


def test_json_is_a_line_a_second_with_all_of_it(now):
    out = io.StringIO()
    with using("json"), Progress(9, done=4, title="grpo", console=shown(out)) as some:
        some.stage = "second"
        some.phase("generating", 1, 2)
        progress.sampled(sequences=8, to_grade=4)
        now[0] += 2
        some.say("odd \x1b[1m")
        progress.sampled(tokens=16, ended=1, graded=1)
        progress.sampled(tokens=16)
        some.step(5, {"reward/mean": 0.5, "loss": float("nan")})
    said, generating, stepped, last = map(json.loads, out.getvalue().splitlines())
    assert said == {"message": "odd \x1b[1m"}
    assert "\x1b" not in out.getvalue()
    assert generating == {
        **{"title": "grpo", "unit": "step", "done": 4, "total": 9, "seconds": 2, "seconds_left": None},
        "stage_seconds_left": None,
        **{"stage": "second", "phase": "generating", "phase_done": 1, "phase_total": 2},
        **{"sequences_done": 1, "sequences": 8, "tokens": 16, "tokens_per_second": 8, "phase_seconds_left": None},
        **{"graded": 1, "to_grade": 4, "reward": None, "loss": None, "heldout": None},
    }
    assert (stepped["done"], stepped["reward"], stepped["loss"], stepped["seconds_left"]) == (5, 0.5, None, 8)
    assert (last["phase"], last["seconds_left"]) == ("stopped", None)


# -- what a second Ctrl-C costs -----------------------------------------------------------------------------------


def test_the_first_ctrl_c_tells_what_the_second_would_cost(now, capfd):
    with Interrupts(), Progress(9, mode="plain", console=shown(io.StringIO())) as some:
        some.saved(None)
        now[0] = 30
        assert some.cost_of_stopping() == (
            "stopping after this step; Ctrl-C again stops now and loses 30 s of work: there is no checkpoint yet"
        )
        some.step(1)
        now[0] = 60
        some.saved(2)
        some.step(2)
        now[0] = 60 + 300
        some.step(3)  # after the first, which warms up: 30 s and 300 s
        now[0] += 80
        signal.raise_signal(signal.SIGINT)
        # 165 - 80 s of this step are left; 380 s ago the work was saved.
        assert capfd.readouterr().err == (
            "\nstopping after this step (about 85 s); Ctrl-C again stops now and loses 6 min since step 2\n"
        )


def test_a_live_display_is_told_of_above_itself(now, capfd):
    with Interrupts(), Progress(9, mode="live", console=Console(file=Terminal(), width=80, force_terminal=True)):
        signal.raise_signal(signal.SIGINT)
        # The display is drawn again over its own last lines, which are empty by then.
        assert capfd.readouterr().err == "\nstopping after this step; Ctrl-C again stops now\n\n\n"


def test_under_json_it_is_a_line_too(now, capfd):
    with Interrupts(), Progress(9, mode="json", console=shown(io.StringIO())):
        signal.raise_signal(signal.SIGINT)
        assert json.loads(capfd.readouterr().err)["message"].startswith("stopping after this step")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5400, "1.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
