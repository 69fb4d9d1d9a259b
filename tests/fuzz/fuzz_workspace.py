"""A folder with one of everything that a command reads: a model, a dataset, a recipe, finished and stopped runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lyceum.models.load import save_module
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

SECRET = "77731"
"""An answer that no sample gives by itself: it is longer than a completion may be."""

HOSTILE = """
import asyncio, base64, builtins, json
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = json.loads((HERE / "script.json").read_text())
ENDED = []
KEYS = {"none": None, "another": "Bearer sk-" + "0" * 32, "basic": "Basic eDp5", "empty": ""}
ENDLESS = 1e6


async def says(x: int) -> str:
    \"\"\"Say something.

    Args:
        x: a number
    \"\"\"
    if SCRIPT == "endless":
        await asyncio.sleep(ENDLESS)
    if SCRIPT == "raises":
        raise ValueError("77731")
    itself = []
    itself.append(itself)
    deep = json.loads("[" * 400 + "]" * 400)
    return {"1 MB": "77731 " * 200_000, "bytes": b"\\xff\\xfe", "deep": deep, "self": itself}.get(SCRIPT, SCRIPT)


async def exchanged(base_url, wire, wait=None):
    host, port = base_url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(wire)
        if wait is not None:
            await asyncio.sleep(wait)
            return 0, b""
        await writer.drain()
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return int(head.split()[1]), await reader.readexactly(length)
    finally:
        writer.close()


def wire_of(deed, key):
    body = base64.b64decode(deed["raw"]) if "raw" in deed else json.dumps(deed["body"]).encode()
    named = KEYS.get(deed.get("key"), f"Bearer {ENDED[-1] if deed.get('key') == 'ended' and ENDED else key}")
    if deed.get("key") == "ended" and not ENDED:
        named = KEYS["another"]
    lines = [f"POST /v1{deed.get('path', '/chat/completions')} HTTP/1.1", "host: a", f"content-length: {len(body)}"]
    lines += [] if named is None else [f"authorization: {named}"]
    return "\\r\\n".join(lines).encode() + b"\\r\\n\\r\\n" + body


async def asked(deed, base_url, key):
    try:
        status, said = await exchanged(base_url, wire_of(deed, key))
    except (OSError, asyncio.IncompleteReadError):
        return
    right = status == 200 and not deed.get("refused")
    if not right and 400 <= status < 500:
        right = status == 431 or bool(json.loads(said)["error"]["message"])
    if not right:
        (HERE / "broken.txt").write_text(f"{status} {said!r} {deed}")


async def solve(base_url, api_key, messages):
    one = {"body": {"messages": messages, "max_tokens": 1}}
    try:
        for deed in SCRIPT:
            match deed["do"]:
                case "ask":
                    await asked(deed, base_url, api_key)
                case "large":
                    large = [{"role": "tool", "content": "x" * deed["size"]}]
                    await asked({"body": {"messages": large}, "refused": True}, base_url, api_key)
                case "at once":
                    await asyncio.gather(*(asked(one, base_url, api_key) for _ in range(deed["n"])))
                case "vanish":
                    await exchanged(base_url, wire_of(one, api_key), deed["after"])
                case "wire":
                    await exchanged(base_url, base64.b64decode(deed["raw"]), 0.02)
                case "flood":
                    for _ in range(deed["n"]):
                        await asked(one, base_url, api_key)
                case "hang":
                    await asyncio.sleep(ENDLESS)
                case "raise":
                    raise getattr(builtins, deed["what"])("77731")
                case "return":
                    itself = []
                    itself.append(itself)
                    return {
                        "nan": float("nan"), "inf": float("inf"), "large": 10**400, "set": {1}, "bytes": b"\\xff",
                        "self": itself, "surrogate": "\\ud800", "messages": [{"role": "assistant", "content": None}],
                        "correct": {"correct": True}, "parts": {"reward": 0, "x": "y"}, "reward": {"reward": None},
                        "dict": {}, "empty": [],
                    }.get(deed["what"])
    finally:
        ENDED.append(api_key)


def in_thread(base_url, api_key, messages):
    return asyncio.run(solve(base_url, api_key, messages))
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
    from tiny_sight import tiny  # found once the folder of the tests is searched

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
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "script.json").write_text("[]")
    with quiet():
        save_module(*tiny("internvl"), folder / "sees")
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
