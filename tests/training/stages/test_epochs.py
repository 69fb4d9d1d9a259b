"""A stage may end after passes over its tasks, whichever of steps and epochs comes first."""

import json
import math
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lyceum
from lyceum.recipe.schema import load_recipe
from lyceum.training.stages.stopping import last_step, note
from lyceum.utils.errors import Interrupted

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY: dict[str, Any] = {
    "model": "scratch",
    "evaluate.n": 0,
    "tasks_per_step": 3,
    "rollout.samples": 2,
    "rollout.sampling.max_completion_tokens": 4,
    "track": [],
    "progress": "silent",
}


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(30)))
    return str(file)


def seen_in(
    rows: str, stop_at: int | None = None, outcome: float | None = None, **keys: Any
) -> tuple[Counter[str], Any]:
    """How often each task was sampled, by its answer, and the run."""
    seen: Counter[str] = Counter()

    def reward(completion: str, answer: str) -> float:
        seen[answer] += 1
        if seen.total() == stop_at:
            signal.raise_signal(signal.SIGINT)
        return len(completion) / 4 if outcome is None else outcome

    run = None
    try:
        run = lyceum.train("grpo", tasks=rows, reward=reward, **TINY | keys)
    except Interrupted:
        assert stop_at is not None
    return Counter({answer: count // 2 for answer, count in seen.items()}), run


def test_the_last_step_of_the_last_pass_is_the_last():
    # 2 passes over 7 tasks are 14 draws: 4 steps of 3 and one of 2.
    assert [last_step(steps, 2, 7, 3) for steps in (4, 5, 100)] == [4, 5, 5]
    assert last_step(9, None, 7, 3) == 9
    assert note(4, 2, 7, 3).endswith("2 over 7 tasks would take 5 steps of 3, but the stage ends after steps=4; "
                                     "for all of them: steps=5")  # fmt: skip
    assert note(5, 2, 7, 3) == note(1, None, 7, 3) == ""


def test_every_task_is_trained_once_per_epoch_and_no_more(rows: str):
    seen, run = seen_in(rows, epochs=2)
    tasks = len(seen)
    assert set(seen.values()) == {2}
    assert len(run.metrics) == math.ceil(2 * tasks / 3)
    assert run.metrics[-1]["groups"] == (2 * tasks - 1) % 3 + 1


def test_steps_end_a_stage_before_its_epochs(rows: str):
    _, run = seen_in(rows, epochs=2, steps=3)
    assert len(run.metrics) == 3


def test_a_resumed_stage_knows_how_many_tasks_it_has_drawn(rows: str):
    keys = {"epochs": 1, "checkpoint_every": 1}
    whole, run = seen_in(rows, name="whole", **keys)
    first, _ = seen_in(rows, stop_at=4, name="stopped", **keys)
    rest, resumed = seen_in(rows, name="stopped", resume=True, **keys)
    assert first + rest == whole
    assert [line["reward/mean"] for line in resumed.metrics] == [line["reward/mean"] for line in run.metrics]


def test_groups_that_are_dropped_count_as_drawn(rows: str):
    # No group is solved in part, so that all are dropped, wave after wave, until none is left.
    seen, run = seen_in(rows, outcome=0.0, epochs=1, **{"collect.keep": "partly-solved", "collect.max_waves": 50})
    assert set(seen.values()) == {1}
    assert len(run.metrics) == 1


def test_fine_tuning_has_epochs_too(rows: str):
    tiny = {key: value for key, value in TINY.items() if not key.startswith("rollout")}
    run = lyceum.train("sft", tasks=rows, epochs=1, **tiny)
    tasks = len(load_recipe("sft", [f"tasks={rows}"]).tasks.build("train", 0))
    assert len(run.metrics) == math.ceil(tasks / 3)


def test_a_k_above_the_samples_counts_as_the_samples(caplog: pytest.LogCaptureFixture):
    recipe = load_recipe("grpo", ["evaluate.samples=4"])
    assert recipe.evaluate.k == (1, 4)
    assert "evaluate.k: 1,4, since each task is sampled 4 times (evaluate.samples)" in caplog.text
    assert load_recipe("grpo", ["evaluate.samples=8"]).evaluate.k == (1, 8)
    assert load_recipe("grpo", ["evaluate.samples=1"]).evaluate.k == (1,)
