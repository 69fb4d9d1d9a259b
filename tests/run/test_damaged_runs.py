"""Files of a run that something has damaged: named, mended where that is certain, never the end of what was trained."""

import json
import shutil
from pathlib import Path

import pytest
from begun_run import begun_run
from folder_digest import digest

from lyceum.analysis.comparison.result import compare
from lyceum.cli import main
from lyceum.recipe.schema import parse
from lyceum.run import checkpoint
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

RECIPE = {
    "label": "same",
    "model": "scratch",
    "tasks": "chain-demonstrations",
    "evaluate": {"n": 2, "samples": 2, "k": [1], "sampling": {"max_completion_tokens": 4}},
    "stages": [{"kind": "sft", "steps": 4, "tasks_per_step": 2, "learner": {"lr": 1e-3}}],
    "checkpoint_every": 1,
    "track": [],
}
EVALUATING = 4
"""Times that the first evaluation asks whether to stop: two tasks, sampled and greedily."""


def begin(root: Path, name: str):
    return parse(RECIPE | {"output": str(root), "name": name})


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """``whole``, never interrupted, and ``cut``, stopped after its third step."""
    root = tmp_path_factory.mktemp("runs")
    train(begin(root, "whole"))
    asked = iter([False] * (EVALUATING + 2))
    with pytest.raises(Interrupted):
        train(begin(root, "cut"), interrupted=lambda: next(asked, True))
    return root


@pytest.fixture
def cut(runs, tmp_path) -> Path:
    return Path(shutil.copytree(runs / "cut", tmp_path / "cut"))


def untimed(metrics: dict) -> dict:
    return {k: v for k, v in metrics.items() if k not in ("seconds", "versions")}


@pytest.mark.parametrize("content", [b"garbage", b"[]"[:1], b'{"a": 1}', b"[3]", b"\xff\xfe", b"[" * 5000])
@pytest.mark.parametrize("name", ["examples.json", "summary.json"])
def test_a_resumed_run_puts_a_damaged_file_by_and_ends_with_the_same_model(runs, cut, name, content):
    (cut / name).write_bytes(content if name == "examples.json" or content[:1] != b"{" else b'{"before": 3}')
    damaged = (cut / name).read_bytes()
    with pytest.warns(UserWarning, match=rf"{name}: .* It is {name}\.damaged now, and "):
        train(begin(cut.parent, "cut"), resume=True)
    assert (cut / f"{name}.damaged").read_bytes() == damaged
    assert digest(cut / "model") == digest(runs / "whole" / "model")
    whole, mended = (json.loads((path / "summary.json").read_text()) for path in (runs / "whole", cut))
    assert untimed(whole) == untimed(mended)  # what was measured before training is measured again
    assert (cut / "report.html").exists()


def test_a_resumed_run_takes_examples_of_a_version_that_wrote_null(runs, cut):
    examples = json.loads((cut / "examples.json").read_text())
    (cut / "examples.json").write_text(json.dumps([example | {"before": None} for example in examples]))
    train(begin(cut.parent, "cut"), resume=True)
    assert digest(cut / "model") == digest(runs / "whole" / "model")
    assert all(example["after"] for example in json.loads((cut / "examples.json").read_text()))


def lines(path: Path) -> list[str]:
    return (path / "metrics.jsonl").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "left", "said"),
    [
        (lambda found: found[1:], [2, 3], "2 lines up to step 3, 3 were written"),
        (lambda found: found + found, [1, 2, 3], "3 lines up to step 3, 3 were written, 3 were duplicates"),
        (lambda found: [found[0], "garbage\n", found[2]], [1, 3], "2 lines up to step 3, 3 were written"),
        (lambda found: [found[2], found[1], found[0]], [1, 2, 3], "3 lines up to step 3, 3 were written"),
        (lambda found: ['{"step": "1"}\n', *found[1:]], [2, 3], "2 lines up to step 3"),
        (lambda found: [], [], "0 lines up to step 3, 3 were written"),
    ],
)
def test_lines_of_metrics_that_are_missing_or_doubled_are_told_and_what_is_whole_is_kept(cut, damage, left, said):
    recorded = lines(cut)
    (cut / "metrics.jsonl").write_text("".join(damage(recorded)))
    damaged = (cut / "metrics.jsonl").read_bytes()
    with pytest.warns(UserWarning, match=rf"metrics\.jsonl: damaged: {said}"):
        train(begin(cut.parent, "cut"), resume=True)
    assert lines(cut)[:-1] == [recorded[step - 1] for step in left]
    assert json.loads(lines(cut)[-1])["step"] == 4
    kept = cut / "metrics.jsonl.damaged"
    assert kept.read_bytes() == damaged if damaged else not kept.exists()


def test_the_model_is_saved_whatever_happens_after_the_last_step(cut, monkeypatch):
    def fails(*_, **__):
        raise OSError("the verifier's process is gone")

    monkeypatch.setattr("lyceum.training.train._evaluate", fails)
    with pytest.raises(OSError, match="verifier"):
        train(begin(cut.parent, "cut"), resume=True)
    assert (cut / "model" / "model.safetensors").exists()


@pytest.mark.filterwarnings("ignore:checkpoint passed over")
def test_a_run_none_of_whose_checkpoints_is_whole_is_not_begun_again_over_them(cut):
    for saved in checkpoint.found(cut / "checkpoints"):
        (saved / "state.json").write_text("{}")
    before = digest(cut, without=(".lock",))
    with pytest.raises(RecipeError, match=r"none of the 2 checkpoints in .* is whole; allowed: "):
        train(begin(cut.parent, "cut"), resume=True)
    assert digest(cut, without=(".lock",)) == before


def test_files_that_are_no_steps_rollouts_are_left_alone(tmp_path):
    with begun_run(tmp_path, "demo", {}) as run:
        (run.path / "rollouts").mkdir()
        for name in ("step-abc.parquet", "step-000009.parquet"):
            (run.path / "rollouts" / name).write_text("")
    with begun_run(tmp_path, "demo", {}, resume=True) as run:
        run.restore()
    assert [path.name for path in (run.path / "rollouts").iterdir()] == ["step-abc.parquet"]


# -- readers ------------------------------------------------------------------------------------------------------

GARBAGE = [b"garbage", b"\xff\xfe\x00", b"[" * 5000, b"3", b'{"step": 1' + b"0" * 5000 + b"}\n"]
DAMAGE = [
    *(
        ("summary.json", content)
        for content in [*GARBAGE, b'{"before": [1]}', b'{"after": {"overall": {"mean": "x"}}}']
    ),
    *(("summary.json", content) for content in [b'{"seconds": {"a": "b"}}', b'{"steps": "x"}', b'{"finished": "yes"}']),
    *(
        ("metrics.jsonl", content + b"\n")
        for content in [*GARBAGE, b'{"step": "x"}', b'{"step": 1, "time": []}', b"{}"]
    ),
    *(("examples.json", content) for content in [*GARBAGE, b"{}", b'[{"task_id": "a"}]', b"[[]]"]),
    *(("examples.json", content) for content in [b'[{"task_id": "a", "prompt": "p", "before": 3}]']),
    ("examples.json", b'[{"task_id": "a", "prompt": "p", "after": {"completion": "c", "correct": "perhaps"}}]'),
    ("examples.json", b'[{"task_id": "a", "prompt": "p", "after": {"completion": "c"}}]'),
    ("summary.json", b'{"after": {"reward": 1, "overall": {"mean": 1, "low": 0, "high": 1}}}'),
    ("summary.json", b'{"learnt": false, "nothing_learnt": 3}'),
]


@pytest.mark.parametrize(("name", "content"), DAMAGE)
def test_view_names_the_file_that_is_damaged_and_what_to_do(runs, tmp_path, name, content, capsys):
    run = Path(shutil.copytree(runs / "whole", tmp_path / "demo"))
    (run / name).write_bytes(content)
    before = digest(run)
    assert main(["view", str(run)]) == 2
    err = capsys.readouterr().err
    assert f"{run / name}" in err
    assert "; allowed: " in err
    assert digest(run) == before


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\xff\xfe", b"a: [1", b"stages: 3", b"tasks: 3", b"evaluate: []"]
)
def test_eval_names_the_recipe_that_is_damaged(runs, tmp_path, content, capsys):
    run = Path(shutil.copytree(runs / "whole", tmp_path / "demo"))
    (run / "recipe.yaml").write_bytes(content)
    assert main(["eval", str(run)]) == 2
    assert f"{run / 'recipe.yaml'}: " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "content"), [entry for entry in DAMAGE if entry[0] != "examples.json"])
def test_a_comparison_names_the_file_that_is_damaged(runs, tmp_path, name, content):
    run = Path(shutil.copytree(runs / "whole", tmp_path / "demo"))
    (run / name).write_bytes(content)
    with pytest.raises(RecipeError, match=name):
        compare([run])


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_flipped_byte_of_a_rollout_file_never_ends_in_a_traceback(tmp_path, place, capsys):
    from test_folder import decode, tree_of

    with begun_run(tmp_path, "demo", {}) as run:
        file = run.rollouts(1, [tree_of(["4", "5"])], None, decode, always=True)
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0xFF
    file.write_bytes(content)
    assert main(["view", str(run.path)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
