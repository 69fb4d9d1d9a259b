import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from levelled import Source

from lyceum.curriculum._bandit import pick, softmax, unit_draw
from lyceum.curriculum.base import LOOKED_AT, TasksByCategory, categories_of
from lyceum.tasks.chain import Chain, ChainSource
from lyceum.tasks.dataset import Dataset
from lyceum.tasks.mixture import Mixture
from lyceum.utils.errors import RecipeError


def test_the_boltzmann_distribution_is_in_units_of_the_temperature():
    # exp(0.2 ln 3 / 0.2) = 3 against 1: a quarter and three quarters. Without the temperature: 0.445 and 0.555.
    np.testing.assert_allclose(softmax(np.array([0.0, 0.2 * math.log(3)]), 0.2), [0.25, 0.75])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.floats(1e-3, 1e3))
def test_shares_add_up_to_1_however_far_values_are_apart(values, temperature):
    shares = softmax(np.array(values), temperature)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()


@pytest.mark.parametrize(("at", "chosen"), [(0.0, 0), (0.249, 0), (0.25, 2), (0.9999999999999999, 2)])
def test_each_index_has_its_share_of_the_length(at, chosen):
    # The middle one has no share: a search from the left would choose it at exactly 0.25.
    assert pick(np.array([0.25, 0.0, 0.75]), at) == chosen


def test_a_share_that_rounding_left_short_of_1_still_chooses_the_last():
    assert pick(np.array([0.5, 0.4999]), 0.99999) == 1


def test_draws_are_of_the_seed_and_the_position_alone():
    assert unit_draw(3, 7) == unit_draw(3, 7)
    assert len({unit_draw(s, k) for s in (3, 4) for k in range(50)}) == 100


def test_every_task_of_a_category_comes_once_an_epoch():
    tasks = TasksByCategory(Source(12, levels=(1, 2, 2)), by="level", seed=5)
    drawn = [tasks.take("2").id for _ in range(16)]
    assert Counter(drawn[:8]) == Counter(str(i) for i in range(12) if i % 3)
    assert Counter(drawn[8:]) == Counter(drawn[:8])
    assert drawn[8:] != drawn[:8]


def test_the_categories_of_a_sorted_dataset_are_all_found(tmp_path):
    # 1500 easy rows first: a look at the first thousand would never ask for the hard ones.
    rows = [{"prompt": f"{i}", "answer": "1", "level": "easy" if i < 1500 else "hard"} for i in range(1600)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Dataset.model_validate({"path": str(tmp_path / "rows.jsonl"), "heldout_share": 0}).build("train", 0)
    assert categories_of(source, "level") == ["easy", "hard"]


def test_tasks_that_depend_on_settings_and_seed_alone_are_looked_through_once(monkeypatch):
    made = []
    make = ChainSource.__getitem__
    monkeypatch.setattr(ChainSource, "__getitem__", lambda self, index: made.append(index) or make(self, index))

    def looked_through(settings, seed, by="level"):
        before = len(made)
        return categories_of(settings.build("train", seed), by), len(made) - before

    seed = 987_654_321  # which no other test of this process has
    few, more = Chain(levels=(3, 5)), Chain(levels=(3, 5, 9))
    assert looked_through(few, seed) == (["3", "5"], LOOKED_AT)
    assert looked_through(few, seed) == (["3", "5"], 0)
    # Other levels, another seed, another column: were one left out of what is compared, these would be the first's.
    assert looked_through(more, seed) == (["3", "5", "9"], LOOKED_AT)
    assert looked_through(few, seed + 1) == (["3", "5"], LOOKED_AT)
    assert looked_through(few, seed, by="provenance") == (["chain"], LOOKED_AT)
    mixtures = [Mixture.model_validate({"parts": [{"tasks": few}, {"tasks": part}]}) for part in (few, more)]
    assert [looked_through(each, seed) for each in (*mixtures, *mixtures)] == [
        *((["3", "5"], LOOKED_AT), (["3", "5", "9"], LOOKED_AT)),
        *((["3", "5"], 0), (["3", "5", "9"], 0)),
    ]


@pytest.mark.parametrize("level", [float("nan"), None, "", "nan", float("inf")])
def test_a_level_that_names_nothing_is_refused(level):
    with pytest.raises(RecipeError, match=r"curriculum.by: task '1' has .* in column 'level'"):
        categories_of(Source(4, levels=(1, level)), "level")


def test_a_column_that_is_not_there_names_the_nearest():
    with pytest.raises(RecipeError, match=r"None in column 'levle' \(did you mean 'level'\?\)"):
        categories_of(Source(4), "levle")
