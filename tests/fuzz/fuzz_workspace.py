"""A folder with one of everything that a command reads: a model, a dataset, a recipe, finished and stopped runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lyceum.models.scratch import build_scratch
from lyceum.utils.library_messages import quiet

SMALL = (
    *("model=model", "tasks=data.jsonl", "tasks.heldout_path=heldout.jsonl", "reward=reward.py:later"),
    *("steps=2", "tasks_per_step=2", "rollout.samples=2"),
    *("rollout.sampling.max_completion_tokens=4", "evaluate.n=1", "evaluate.samples=1", "evaluate.k=[1]"),
)
"""Settings with which a run takes a tenth of a second."""
RECORDED = ("checkpoint_every=1", "rollouts_every=1", "trees_every=1", "digests=true")
"""Settings with which it leaves every file that a run can leave."""

REWARD = """
def score(completion, answer, **columns):
    return sum(map(ord, completion)) % 7 / 7


def broken(completion, **columns):
    return 1 / 0


def odd(completion, **columns):
    return [float("nan"), float("inf"), 1e308, -1e308, 10**400, None, "x", {}, True][len(completion) % 9]


async def later(completion, **columns):  # in the run's own process: no other has to be started
    return score(completion, None)


async def as_trl(completions, solution, **columns):
    return [completion[0]["content"].count("1") for completion in completions]


def get_longest(most: int = 3):
    def longest(completion_ids, **columns):
        return [float(len(ids) > most) for ids in completion_ids][: most or None]

    return longest


not_a_function = 3
"""


ENDS = """
import os, sys


def score(completion, **columns):
    return 0.0


def __getattr__(name):
    if name == "exits":
        os._exit(0)
    raise AttributeError(name)


sys.exit(0)
"""

TOOLS = """
import os, sys


def ok(x: int) -> str:
    \"\"\"Say ok.

    Args:
        x: a number
    \"\"\"
    return "ok"


def prints(x: int) -> str:
    \"\"\"Print much.

    Args:
        x: a number
    \"\"\"
    print("x" * 5_000_000)
    return "<|im_end|>" * 100


def ends(x: int) -> str:
    \"\"\"End the program.

    Args:
        x: a number
    \"\"\"
    sys.exit(0)


def half(x: int) -> str:
    \"\"\"Give half a character.

    Args:
        x: a number
    \"\"\"
    return "\\ud800"
"""


def build(folder: Path, run) -> None:
    """Fill a folder. ``run(argv)`` runs a command in it and gives how it ended."""
    folder.mkdir(parents=True)
    module, tokenizer = build_scratch(width=16, layers=1, heads=2, feed_forward=16, context=128)
    with quiet():
        module.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    program = {"note": "x", "tests": ["assert f(1) == 2", "assert x"]}
    rows = [program | {"prompt": f"{i}+{i}=", "answer": str(2 * i), "level": i % 3, "note": "x" * i} for i in range(40)]
    heldout = program | {"prompt": "70+7=", "answer": 77, "level": 1}
    (folder / "heldout.jsonl").write_text(json.dumps(heldout) + "\n")
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chats = [[{"role": "user", "content": f"{i}+1="}] for i in range(40)]
    solved = [
        {"prompt": chat, "answer": i + 1, "hints": ["add", f"it is {i}"], "demonstration": f"{i + 1}"}
        for i, chat in enumerate(chats)
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in solved))
    (folder / "rows.json").write_text(json.dumps(rows))
    _parquet(folder / "data.parquet", rows)
    (folder / "mine.yaml").write_text("extends: grpo\ntitle: Mine\nseed: 3\nevaluate: {n: 1, samples: 1, k: [1]}\n")
    (folder / "reward.py").write_text(REWARD)
    (folder / "ends.py").write_text(ENDS)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "loop").symlink_to("loop")
    (folder / "template.jinja").write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    (folder / "plain.txt").write_text("".join(f"{i}+1={i + 1}. It is so.\n\n" for i in range(40)))
    (folder / "notes.txt").write_text("not to be lost\n")
    for name in ("done", "stopped"):
        ended = run(["train", "grpo", *SMALL, *RECORDED, "--name", name])
        if ended.code != 0:
            raise RuntimeError(f"the fixture's run failed: {ended}")
    stopped = folder / "runs" / "stopped"
    summary = json.loads((stopped / "summary.json").read_text()) | {"finished": False}
    (stopped / "summary.json").write_text(json.dumps(summary))
    (stopped / "report.html").unlink()
    shutil.rmtree(stopped / "model")


def _parquet(file: Path, rows: list[dict]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
