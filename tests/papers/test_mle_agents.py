import pytest
import torch
from fake_task import roll
from guidance_fakes import FakeContext, ask, flat

from lyceum.core.types import Grade
from lyceum.papers.mle_agents.credit_duration_aware import weighted_relative, weights
from lyceum.papers.mle_agents.guidance_clocked_workers import ClockedWorkers, begun
from lyceum.papers.mle_agents.reward_progress_marks import ProgressMarks, instrumented, mark_of, progress
from lyceum.papers.mle_agents.tasks_tables import Tables, make_task
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import execute, usable
from lyceum.utils.errors import RunError


def test_weights_of_durations_have_mean_1():
    # 3 and 9 seconds: over their mean 6. With exponent 0 nothing is weighted.
    assert weights(torch.tensor([3.0, 9.0]), exponent=1).tolist() == [0.5, 1.5]
    assert weights(torch.tensor([3.0, 9.0]), exponent=0).tolist() == [1.0, 1.0]


def test_three_quick_samples_push_no_more_than_a_slow_one_that_takes_three_times_as_long():
    # Within 9 seconds a worker begins a quick program (3 s, earns 0) three times, a slow one (9 s, earns 1) once.
    # Weights 3, 3, 3, 9 over 4.5: 2/3 thrice, 2. Mean (2 * 1) / 4 = 1/2, deviation 1/2: advantages -2/3 thrice and 2,
    # those of one quick and one slow sample. Without weights the mean would be 1/4, as if quick ones were the policy.
    weight = weights(torch.tensor([3.0, 3.0, 3.0, 9.0]), exponent=1)
    advantage = weighted_relative(
        torch.tensor([0.0, 0.0, 0.0, 1.0]), weight, torch.zeros(4, dtype=torch.long), eps=1e-9
    )
    torch.testing.assert_close(advantage, torch.tensor([-2 / 3, -2 / 3, -2 / 3, 2.0]))


def test_equal_rewards_give_exactly_zero():
    reward, weight = torch.full((3,), 0.9), torch.tensor([0.1, 0.9, 2.0])
    assert (weighted_relative(reward, weight, torch.zeros(3, dtype=torch.long), eps=1e-6) == 0).all()


def test_a_worker_begins_the_next_sample_when_its_last_has_ended():
    assert begun([3, 19, 3], 1, 20) == (2, False), "the third would begin at 22"
    assert begun([3, 19, 3], 2, 20) == (3, True), "the third begins at 3, and its worker is free again at 6"
    assert begun([3] * 9, 1, 9) == (3, False), "at 0, 3 and 6"


class Timed(FakeContext):
    async def grade(self, leaves):
        for leaf in leaves:
            leaf.grade = Grade(1.0, True, parts={"seconds": 3.0})
        return [leaf.grade for leaf in leaves]


def test_samples_that_no_worker_would_have_begun_are_not_trained():
    guide = ClockedWorkers(workers=1, seconds=4, duration="seconds").build(None, seed=0)  # pyright: ignore[reportArgumentType]
    tree = roll(guide(flat(3)), Timed(), ask("Q"))
    guide.observe([tree])
    assert len(tree.chosen) == 2, "begun at 0 and 3; at 6 the time is over"
    assert guide.metrics()["samples/not_begun"] == 1
    without = ClockedWorkers(duration="hours").build(None, seed=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match="no part 'hours'"):
        roll(without(flat(3)), Timed(), ask("Q"))


def graded(program):
    task = make_task("t", 37)
    text = f"{task.columns['library']}\n{instrumented(program, ProgressMarks().marks, mark_of(task))}"
    limits = ProgramLimits(seconds=4, cpu_seconds=2, output_kb=64)
    printed = execute(text, characters=1000, limits=limits, backend=usable("auto"))
    return ProgressMarks().grade(printed, mark_of(task))


def test_a_program_that_fails_late_earns_more_than_one_that_fails_at_once():
    at_once, late = graded("d=load(137);m=mean(d);submit(m)"), graded("d=load(37);m=fit(d,2);submit(x)")
    assert at_once.outcome == -0.5
    assert late.outcome == pytest.approx(-0.5 + 0.2), "marks load and fit"
    # load 1, mean 1, two epochs of 2 seconds; the submission fails before its second.
    assert late.parts["duration"] == 6
    assert at_once.parts["duration"] == 1


def test_more_epochs_take_longer_and_score_better():
    # The slope's error shrinks by 1 - 0.3 * (1 + 1/4 + 0 + 1/4 + 1) / 5 = 0.85 in each epoch, and what the rows lose
    # by its square: 1 - 0.85 ** (2 n).
    one, nine = graded("d=load(37);m=fit(d,1);submit(m)"), graded("d=load(37);m=fit(d,9);submit(m)")
    assert one.outcome == pytest.approx(1 - 0.85**2, abs=1e-5)
    assert nine.outcome == pytest.approx(1 - 0.85**18, abs=1e-5)
    assert (one.parts["duration"], nine.parts["duration"]) == (5, 21)
    assert (one.correct, nine.correct) == (False, True)


def test_what_a_program_prints_itself_is_no_mark():
    forged = progress("@1 end 99 1.0\nend 5 1.0\n@2 load 3\n@2 end 3 None", "@2")
    assert (forged.marks, forged.seconds, forged.score) == (("load",), 3.0, None)


@pytest.mark.parametrize("program", ["score=1.0", "globals()['sc'+'ore']=1.0", "exec('sc'+'ore=1.0')"])
def test_a_program_that_would_write_its_own_score_fails(program):
    assert graded(program).outcome == -0.5


def test_demonstrations_fail_at_different_places_and_are_mostly_quick():
    written = [Tables(size=200).build("train", 0)[i].columns["demonstration"] for i in range(200)]
    assert any("load(1" in text and len(text.split(";")[0]) == 11 for text in written)
    assert any("submit(x)" in text for text in written)
    assert any("(x" in text.split(";")[1] for text in written)
    assert sum("mean" in text or ",1)" in text for text in written) > 100
