"""Runs on pictures: resumed to the bit, both layouts alike, each picture encoded once, and what is refused."""

from typing import Literal

import pytest
import tiny_rewards  # noqa: F401, its kind is asked for below
from tiny_sight import noise

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.core.types import Observation, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.environment.look import Look, LookEnvironment
from lyceum.models.load import ModelSettings, load_tokenizer
from lyceum.models.picture_tokens import ShownPictures
from lyceum.models.prompts import TokenizerReader
from lyceum.models.rates import PictureRates
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_run_folder
from lyceum.run.trees import read_trees
from lyceum.training.stages.online import OnlineRun
from lyceum.training.train import check, train
from lyceum.utils.errors import Interrupted, RecipeError

SMALL = [
    *("model=scratch-pictures", "evaluate.n=0", "track=[]", "tasks_per_step=3", "rollout.samples=3", "digests=true"),
    *("rollout.sampling.max_completion_tokens=6", "reward=test-letters", "steps=3", "checkpoint_every=1"),
    "tasks={kind: pictures, asks: [count], levels: [1]}",
]


def recipe(folder, name, *keys):
    return load_recipe("grpo", [*SMALL, f"output={folder}", f"name={name}", *keys])


def test_a_run_on_pictures_resumes_to_the_bit_and_encodes_each_picture_once(tmp_path, monkeypatch):
    encoded = []
    load = EmbeddedEngine.load

    async def loading(self, weights, version):
        encoded.append(len(self._features))
        await load(self, weights, version)

    monkeypatch.setattr(EmbeddedEngine, "load", loading)
    whole = train(recipe(tmp_path, "whole"))
    assert encoded == [3, 3, 3]  # of three prompts with three samples each
    for metrics in read_run_folder(whole).metrics:
        assert metrics["pictures/step"] == 3
        assert metrics["pictures/encoded_in_training"] == 3
        assert metrics["grad_norm"] > 0
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, "stopped"), interrupted=iter([False, True]).__next__)
    stopped = train(recipe(tmp_path, "stopped"), resume=True)
    assert first_difference(read_digests(whole), read_digests(stopped)) is None
    assert (whole / "model" / "preprocessor_config.json").is_file()
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, stopped)]
    assert weights[0] == weights[1]


def test_an_offline_stage_learns_from_pictures_that_another_process_has_rendered(tmp_path):
    def offline(name, *keys):
        own = {"kind": "offline", "data": {"kind": "sampled", "tasks": 6}, "steps": 2, "tasks_per_step": 3}
        rollout = {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 6}}
        stages = [{**own, "rollout": rollout, "collect": {"keep": "all"}}]
        usual = [key for key in SMALL if not key.startswith(("tasks_per_step", "rollout", "steps"))]
        return load_recipe("grpo", [("stages", stages), *usual, f"output={tmp_path}", f"name={name}", *keys])

    here, there = train(offline("here")), train(offline("there", "runtime=processes"))
    assert first_difference(read_digests(here), read_digests(there)) is None
    with pytest.raises(Interrupted):
        train(offline("stopped"), interrupted=lambda: any(tmp_path.glob("stopped/checkpoints/step-*")))
    stopped = train(offline("stopped"), resume=True)
    assert first_difference(read_digests(here), read_digests(stopped)) is None


def test_a_step_under_a_router_puts_each_picture_through_the_tower_once_before_training(tmp_path, monkeypatch):
    tower, encoded = [], []
    patches, load = PictureRates.patches, EmbeddedEngine.load
    monkeypatch.setattr(
        PictureRates, "patches", lambda self, pixels: tower.append(len(pixels)) or patches(self, pixels)
    )

    async def loading(self, weights, version):
        encoded.append(sorted(tower))
        tower.clear()
        await load(self, weights, version)

    monkeypatch.setattr(EmbeddedEngine, "load", loading)
    run = train(recipe(tmp_path, "routed", "model.rate=routed"))
    # Three tasks, routed together; then by rate in training. Before the first step the model was tried.
    for sizes, metrics in zip(encoded[1:], read_run_folder(run).metrics[1:], strict=True):
        by_rate = [int(metrics[f"pictures/{rate}"]) for rate in ("full", "compressed")]
        assert sizes == sorted([3, *(n for n in by_rate if n)])


def test_a_picture_for_a_model_of_text_alone_is_refused_before_it_is_loaded(tmp_path):
    with pytest.raises(RecipeError) as error:
        check(recipe(tmp_path, "text", "model=base"))
    said = "\n".join(error.value.lines)
    assert "a message holds a picture, and the model reads text alone; allowed: a model that sees" in said


def test_more_image_tokens_than_context_and_too_many_pictures_are_refused(tmp_path):

    reader = TokenizerReader("tasks", load_tokenizer(ModelSettings(path="scratch-pictures")), 64)
    parts = [{"type": "image", "image": noise(seed)} for seed in range(4)]
    reader.check(Task("t", ({"role": "user", "content": parts[:2]},)))
    with pytest.raises(RecipeError, match=r"the prompt of task 't' has 72 tokens, the model's context 64"):
        reader.check(Task("t", ({"role": "user", "content": parts},)))
    with pytest.raises(RecipeError, match="a prompt has 1000 pictures; allowed: at most 256"):
        reader.check(Task("t", ({"role": "user", "content": parts[:1] * 1000},)))


def test_an_unreadable_picture_is_named_with_its_task(tmp_path):

    reader = TokenizerReader("tasks", load_tokenizer(ModelSettings(path="scratch-pictures")), 64)
    content = [{"type": "image", "image": str(tmp_path / "no.png")}]
    with pytest.raises(RecipeError) as error:
        reader.check(Task("t7", ({"role": "user", "content": content},)))
    assert "task 't7'" in error.value.lines[0]
    assert "no such file" in error.value.lines[1]


class AlwaysLooks(Look):
    kind: Literal["test-look"] = "test-look"

    def build(self):
        return LooksOnce(self)


class LooksOnce(LookEnvironment):
    """Whatever the first turn says, it is shown the upper left quarter."""

    async def step(self, state, turn, said, context):
        if state.looks:
            return Observation(state, end=True)
        return await super().step(state, turn, "T0,0,1,1", context)


LOOKS = (
    "rollout={kind: turns, samples: 3, environment: {kind: test-look, mark: T, units: 2, least_side: 48}, sampling: "
    "{max_completion_tokens: 24, stop: [a, e, i, o, u]}}"
)


def test_pictures_that_an_environment_shows_are_trained_also_where_nothing_rendered_them(tmp_path, monkeypatch):
    # Catches a tree whose tokens name a picture that only the process which grew it has seen, or that was seen before
    # a checkpoint: everything but the trees is forgotten before each step is trained.
    whole = train(recipe(tmp_path, "whole", LOOKS, "trees_every=1"))
    metrics = read_run_folder(whole).metrics
    assert all(step["rollout/turns/looks"] > 0 for step in metrics)
    assert all(3 < step["pictures/step"] <= 6 for step in metrics), "three of the tasks and a quarter of each"
    recorded = read_trees(next((whole / "trees").iterdir())).trees
    noted = [note.sources for tree in recorded for note in tree.notes(ShownPictures)]
    assert all(len(sources) == 1 for sources in noted), "once, however many samples looked"
    flatten = OnlineRun.flatten

    def forgetful(self, groups):
        pictures = self.session.policy.sight.pictures
        for known in (pictures._sources, pictures._ids, pictures._seen):
            known.clear()
        return flatten(self, groups)

    monkeypatch.setattr(OnlineRun, "flatten", forgetful)
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, "forgets", LOOKS), interrupted=iter([False, True]).__next__)
    forgets = train(recipe(tmp_path, "forgets", LOOKS), resume=True)
    assert first_difference(read_digests(whole), read_digests(forgets)) is None
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, forgets)]
    assert weights[0] == weights[1]


def test_a_looks_picture_has_the_same_log_probabilities_in_training_as_in_sampling(tmp_path):
    # Catches a picture's tokens that the engine and the learner place or embed differently after the first turn.
    run = train(recipe(tmp_path, "looks", LOOKS, "steps=1"))
    [metrics] = read_run_folder(run).metrics
    assert metrics["rollout/turns/looks"] > 0
    assert metrics["importance/mismatch"] < 1e-4
