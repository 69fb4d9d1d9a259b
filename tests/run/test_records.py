"""Records of earlier steps that were damaged between two starts of a run: the resumed one says which."""

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted

pytestmark = pytest.mark.usefixtures("small_scratch")

KEYS = [
    *("steps=9", "tasks_per_step=2", "rollout.samples=2", "rollout.sampling.max_completion_tokens=4", "evaluate.n=0"),
    *("checkpoint_every=1", "rollouts_every=1", "trees_every=1", "digests=true", "model=scratch", "name=r"),
]


def stopped_after_a_step(tmp_path, **how):
    with pytest.raises(Interrupted):
        train(load_recipe("grpo", [*KEYS, f"output={tmp_path}"]), interrupted=iter([True]).__next__, **how)


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def delete(file):
    file.unlink()


RECORDS = ("digests/step-000001.json", "rollouts/step-000001.parquet", "trees/step-000001.parquet")


@pytest.mark.parametrize("damage", [cut, flip, delete])
@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_record_of_an_earlier_step_is_named(tmp_path, name, damage):
    stopped_after_a_step(tmp_path)
    damage(tmp_path / "r" / name)
    with pytest.warns(UserWarning, match=rf"r: not as the run wrote it: {name}.*; the run goes on without"):
        stopped_after_a_step(tmp_path, resume=True)


def test_whole_records_are_not_spoken_of(tmp_path, recwarn):
    stopped_after_a_step(tmp_path)
    stopped_after_a_step(tmp_path, resume=True)
    assert not [str(each.message) for each in recwarn if "not as the run wrote it" in str(each.message)]
