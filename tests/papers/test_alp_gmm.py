import numpy as np
import pytest
from levelled import Source, assert_resumes, graded
from pydantic import ValidationError

from lyceum.core.types import Task
from lyceum.papers.alp_gmm.curriculum_alp_gmm import (
    AlpGmm,
    GaussianMixture,
    Parameters,
    absolute_progress,
    fit,
    shares_of,
)
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError


class Box(Source):
    """Makes any point of a box to order."""

    parameters = {"size": (0.0, 10.0), "depth": (2.0, 4.0)}  # noqa: RUF012

    def at(self, values, key):
        return Task(key, (), "", values)


def parameters(task):
    return task.note(Parameters).values


class Line(Box):
    parameters = {"size": (0.0, 10.0), "depth": (3.0, 3.0)}  # noqa: RUF012


def build(seed=0, source=None, **settings):
    return AlpGmm(**{"fit_every": 20, "most_components": 3} | settings).build(source or Box(), seed=seed)


def at(size, verdicts=(True, False), depth=3.0):
    return graded(Task("t", (), "").with_note(Parameters({"size": size, "depth": depth})), verdicts)


def test_progress_is_the_change_against_the_nearest_earlier_task():
    earlier = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    outcomes = np.array([0.1, 0.9, 0.4, 0.3, 0.0, 1.0])
    # (0.9, 0.1) is nearest to (1, 0): |0.5 - 0.9|. (0.1, 0.8) to (0, 1): |1 - 0.4|. Of the two in the middle the
    # later one counts: |0.75 - 1|.
    points = np.array([[0.9, 0.1], [0.1, 0.8], [0.5, 0.45]])
    found = absolute_progress(points, np.array([0.5, 1.0, 0.75]), earlier, outcomes)
    np.testing.assert_allclose(found, [0.4, 0.6, 0.25])


def test_with_fewer_than_six_earlier_tasks_there_is_no_progress():
    assert (absolute_progress(np.zeros((2, 1)), np.ones(2), np.zeros((5, 1)), np.zeros(5)) == 0).all()


def test_tasks_of_one_step_are_compared_with_earlier_steps_and_not_with_each_other():
    curriculum = build()
    curriculum.observe([at(5.0, [False, False])] * 8)
    assert (curriculum.recent[:, -1] == 0).all()
    # All at the same point and all solved now: each made progress 1. After the first, the others would have made none.
    curriculum.observe([at(5.0, [True, True])] * 8)
    np.testing.assert_array_equal(curriculum.recent[-8:, -1], np.ones(8))


def test_distance_is_measured_in_shares_of_the_bounds():
    # In its own unit the first earlier task is nearer (0.9 against 1.0), but depth spans 2 and size spans 10:
    # 0.9 / 2 = 0.45 against 1.0 / 10 = 0.1.
    curriculum = build()
    curriculum.observe([at(5.0, [False], depth=2.9)] * 6 + [at(6.0, [True], depth=2.0)])
    curriculum.observe([at(5.0, [True], depth=2.0)])
    assert curriculum.recent[-1, -1] == 0.0


def test_gaussians_are_drawn_in_proportion_to_their_mean_progress():
    np.testing.assert_allclose(shares_of(np.array([0.1, 0.3])), [0.25, 0.75])
    np.testing.assert_allclose(shares_of(np.array([0.0, 0.0])), [0.5, 0.5])
    tight = np.stack([np.eye(2) * 1e-8] * 2)
    mixture = GaussianMixture(np.array([[0.2, 0.1], [0.8, 0.3]]), tight)
    drawn = [float(mixture.draw(np.random.default_rng(i))[0]) for i in range(400)]
    assert all(min(abs(x - 0.2), abs(x - 0.8)) < 0.01 for x in drawn)
    assert 265 < sum(x > 0.5 for x in drawn) < 335  # 300; 4 standard deviations are 35


def test_points_are_drawn_within_the_bounds():
    wide = GaussianMixture(np.array([[0.5, 0.5, 0.5]]), np.eye(3)[None] * 9)
    drawn = np.array([wide.draw(np.random.default_rng(i)) for i in range(50)])
    assert drawn.min() == 0
    assert drawn.max() == 1


def test_the_fit_finds_where_performance_changes():
    rng = np.random.default_rng(0)
    still, moving = rng.normal(0.2, 0.02, 60), rng.normal(0.7, 0.02, 40)
    points = np.column_stack([np.concatenate([still, moving]), np.repeat([0.05, 0.5], [60, 40])])
    points[:, 1] += rng.normal(0, 0.01, 100)
    mixture = fit(points, AlpGmm(fit_every=100, least_components=2, most_components=4, criterion="bic"), seed=3)
    assert len(mixture.share) == 2  # what the points were made of; more components cost more than they explain
    moving_first = int(mixture.mean[:, 0].argmax())
    assert mixture.mean[moving_first, 0] == pytest.approx(0.7, abs=0.02)
    assert mixture.share[moving_first] == pytest.approx(0.5 / 0.55, abs=0.02)


def test_everything_is_random_until_the_first_fit_and_a_share_of_it_afterwards():
    curriculum = build(fit_every=20, random_share=0.25)

    def step(draw=20):
        tasks = curriculum.draw(draw)
        # Progress only between 6 and 8: there, every other step is solved.
        trees = [graded(task, [bool(curriculum.draws % 40) and 6 < parameters(task)["size"] < 8]) for task in tasks]
        curriculum.observe(trees)
        return [parameters(task)["size"] for task in tasks]

    assert curriculum.mixture is None
    step()
    assert curriculum.mixture is not None  # fitted after 20 tasks, on no progress at all
    for _ in range(12):
        step()
    drawn = [parameters(task)["size"] for task in curriculum.draw(400)]
    inside = sum(5.5 < size < 8.5 for size in drawn) / 400
    assert inside > 0.6  # uniform draws alone: 0.3
    assert min(drawn) < 1.5  # and yet a share of them is anywhere
    assert curriculum.metrics()["components/mixture"] in (2, 3)


def test_the_mixture_is_fitted_on_the_latest_tasks_alone():
    curriculum = build(fit_every=20)
    curriculum.observe([at(i / 2) for i in range(19)])
    assert curriculum.mixture is None
    curriculum.observe([at(i / 3) for i in range(30)])
    assert curriculum.recent.shape == (20, 3)


def test_a_parameter_with_one_value_is_given_and_not_searched():
    curriculum = build(source=Line())
    assert curriculum.names == ["size"]
    tasks = curriculum.draw(5)
    assert all(parameters(task)["depth"] == 3.0 for task in tasks)
    assert all(task.columns == parameters(task) for task in tasks), "what the source was told is what is noted"


def test_ungraded_tasks_say_nothing():
    curriculum = build()
    curriculum.observe([at(1.0, [None, None])])
    assert len(curriculum.points) == 0
    assert curriculum.metrics() == {}


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1)
    for i in range(3):
        first.observe([graded(task, [i % 2 == 0, False]) for task in first.draw(10)])
    assert first.mixture is not None
    assert_resumes(first, build(2), [at(float(i), [True, i % 2 == 0]) for i in range(7)])


def test_a_resumed_run_before_anything_was_seen():
    assert_resumes(build(1), build(2), [at(2.0)])


def test_sources_without_parameters_are_refused():
    AlpGmm().check_tasks(Chain(levels=(3,)).build("train", 0))
    with pytest.raises(RecipeError, match="Source cannot make tasks from real-valued parameters"):
        AlpGmm().check_tasks(Source())
    with pytest.raises(RecipeError, match="Source cannot make tasks"):
        AlpGmm().build(Source(), seed=0)


def test_bounds_that_leave_no_choice_are_refused():
    class Point(Box):
        parameters = {"size": (1.0, 1.0)}  # noqa: RUF012

    with pytest.raises(RecipeError, match="every parameter has one value only"):
        AlpGmm().check_tasks(Point())


def test_more_gaussians_than_tasks_are_refused():
    with pytest.raises(ValidationError, match="most_components: got 10 with least_components 2 and fit_every 9"):
        AlpGmm(fit_every=9)
