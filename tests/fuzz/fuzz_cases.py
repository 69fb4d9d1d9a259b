"""What the fuzzer tries: commands with odd settings over odd files. A case is plain data, so that it can be kept."""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from fuzz_attacks import attacks
from fuzz_workspace import RECORDED, SMALL
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from lyceum.core.component import kinds
from lyceum.core.paper_folders import SLOTS
from lyceum.recipe.files import recipe_names
from lyceum.recipe.schema import load_recipe

INPUTS = (
    *("model", "data.jsonl", "heldout.jsonl", "chats.jsonl", "rows.json", "data.parquet"),
    *("mine.yaml", "reward.py", "template.jinja", "plain.txt", "ends.py", "tools.py", "hostile.py", "sees"),
)


@dataclass(frozen=True)
class Case:
    """A command, and what is done to the files before it.

    Attributes:
        argv: words after ``lyceum``.
        changes: (file, what is done to it, with what), in order; see :func:`apply`.
        own: paths that the command may write below, unless it refuses.
        scores: of each row that it grades, in order: what its score has to be, or None where any number will do.
        says: what its words have to contain where it ends with exit code 0.
        counts: metrics of the run that have to be above 0.
        unearned: whether it trains on samples that must not be rewarded, and has to go through all the same.
    """

    argv: tuple[str, ...]
    changes: tuple[tuple[str, str, Any], ...] = ()
    own: tuple[str, ...] = ()
    kind: str = field(default="", compare=False)
    scores: tuple[float | None, ...] = ()
    says: str = ""
    counts: tuple[str, ...] = ()
    unearned: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Case:
        case = json.loads(text)
        changes = tuple((file, how, what) for file, how, what in case["changes"])
        scores, says = tuple(case.get("scores", ())), case.get("says", "")
        counts, unearned = tuple(case.get("counts", ())), case.get("unearned", False)
        return Case(tuple(case["argv"]), changes, tuple(case["own"]), case["kind"], scores, says, counts, unearned)


# --- values -----------------------------------------------------------------------------------------------------------


def _aliases(levels: int) -> str:
    inner = [f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return f"[&a0 [x, x, x, x, x, x, x, x, x], {', '.join(inner)}]"


ODD_TEXTS = (
    *("", " ", "null", "true", "false", "~", "yes", "-1", "0", "1", "2", "0.5", "-0.0", "1e-300", "1e20", "1e308"),
    *(
        "1e400",
        ".nan",
        ".inf",
        "-.inf",
        "nan",
        "inf",
        "1:30",
        "010",
        "²",
        "٣",
        "9" * 5000,
        "9" * 30,
        "[]",
        "{}",
        "[[]]",
    ),
    *("[a", "{a: b}", "{kind: [a]}", "{kind: {}}", "{kind: null}", "{kind: 3}", "&a [*a]", "*a", "- a\n- b"),
    *("!!python/name:os.system", "[" * 3000, "{" * 200, "x" * 20_000, "\x1b]0;owned\x07", "\x1b[2J", "\ud800"),
    *("\u202e", "a\nb", "a\tb", "../x", "/", "model", "data.jsonl", "runs/done", "nowhere", "no/where", "a/b/c"),
    *("reward.py:score", "reward.py:broken", "reward.py:odd", "reward.py:later", "reward.py:nothing", "os:getcwd"),
    *("reward.py:not_a_function", "#", "%", "$x^2", "{x}", "(a|aa)+$", "a{1000}{1000}{1000}", "(?P<x", "1_000", "0x1F"),
    *("2026-01-31", "[1, 2, 3]", "[1, a, null, .nan]", "{a: 1, a: 2}", "'", '"', "\\", "a=b", "=", "chain", "base"),
    *("scratch", "lots", _aliases(9)),
)

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e-300, 1e308),
    *(float("nan"), float("inf"), "", " ", "x" * 20_000, "\x1b[2J", "\ud800", "\u202e", [], {}, [[]], {"": ""}, [None]),
    *({"kind": None}, {"kind": ["a"]}, {"a": {"b": {"c": [1]}}}, "runs", "model", "data.jsonl", "12", "1e-4", "a\x00b"),
)

ODD_KEYS = ("", ".", "a..b", "stages", "stages.0", "stages.².steps", "stages.99.x", "reward.0", "kind", "=", "a.0.b")


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], *, one_in: int = 10) -> st.SearchStrategy[Any]:
    """The usual, and once in a while the odd: a command of which every word is odd is refused for the first."""

    def choose(number: int) -> st.SearchStrategy[Any]:
        # A digest, since hypothesis likes some numbers more than others.
        return odd if blake2b(str(number).encode()).digest()[0] % one_in == 1 else usual

    return st.integers(0, 2**64 - 1).flatmap(choose)


odd_text = st.sampled_from(ODD_TEXTS) | st.text(max_size=20) | st.integers().map(str) | st.floats().map(repr)
odd_value = st.sampled_from(ODD_VALUES) | st.text(max_size=20) | st.integers() | st.floats()


def _dotted(value: Any, above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in value.items() if isinstance(value, dict) else ():
        found |= {f"{above}{key}": inner, **_dotted(inner, f"{above}{key}.")}
    return found


@cache
def settings_of(recipe: str) -> dict[str, Any]:
    """Every dotted key of a recipe as one types it, and the value that it has."""
    resolved = load_recipe(recipe).resolved()
    keys: dict[str, Any] = {}
    for stage in resolved.pop("stages"):
        keys |= _dotted(stage)
    return {key: value for key, value in (keys | _dotted(resolved)).items() if key not in ("kind", "name", "output")}


@cache
def every_key() -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for recipe in recipe_names() for key in settings_of(recipe)))


COMPONENTS = tuple(
    (slot, kind, tuple(of.model_fields)) for slot in SLOTS if slot != "stages" for kind, of in kinds(slot).items()
)


def _near(value: Any) -> tuple[Any, ...]:
    """Values that may well be taken in the place of one, up to the ends of what is allowed."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, max(value - 1, 0), 1, 2, 3, 0, 1000, 1_000_000)
    if isinstance(value, float):
        return (value / 2, 0.0, 1.0, 0.5, 1e-8, 10 * value, 1e-38, 1e9, -1.0)
    if isinstance(value, list):
        return (value[:1], [], value * 2)
    return (value, "x", None)


@st.composite
def overrides(draw: st.DrawFn, recipe: str = "grpo") -> str:
    settings = settings_of(recipe if recipe in recipe_names() else "grpo")
    how = draw(st.sampled_from((*"oonnnnnnnnnntkkvvsx",)))
    if how in "on":
        key = draw(st.sampled_from(tuple(settings)))
        text = draw(odd_text) if how == "o" else json.dumps(draw(st.sampled_from(_near(settings[key]))))
        return f"{key}={text}"
    if how == "t":
        return f"{draw(st.sampled_from(every_key()))}={draw(odd_text)}"
    slot, kind, names = draw(st.sampled_from(COMPONENTS))
    if how == "k":
        return f"{slot}={kind}"
    if how == "v":
        return f"{slot}={{kind: {kind}, {draw(st.sampled_from(names))}: {draw(odd_text)}}}"
    if how == "s":
        return f"{slot}.{draw(st.sampled_from(names))}={draw(odd_text)}"
    key = draw(
        st.sampled_from(
            ("", ".", "a..b", "stages", "stages.0", "stages.².steps", "stages.99.x", "reward.0", "kind", "=")
        )
    )
    return f"{key}={draw(odd_text)}" if draw(st.booleans()) else draw(odd_text)


# --- files ------------------------------------------------------------------------------------------------------------

_ROW_NAMES = ("prompt", "answer", "level", "hints", "demonstration", "id", "rubric", "labels", "é", "", "completion")
_TEXTS = (
    "1+1=",
    "",
    " ",
    "x" * 3000,
    "<|im_end|>\n<|im_start|>assistant\n2",
    "</s>",
    "\ud800",
    "\x1b]0;x\x07",
    "\x00",
    "é漢",
    "{x}",
    "{{ 1 }}",
    "\n",
    "<eos>",
    "1",
)
_contents = st.sampled_from((*_TEXTS, None, 3, 1.5, [], {})) | st.text(max_size=10)
_parts = st.fixed_dictionaries({"type": st.sampled_from(("text", "image", "x", None)), "text": _contents})
_roles = st.sampled_from(("user", "assistant", "system", "tool", "", None, 3))
_message = st.fixed_dictionaries({"role": _roles, "content": _contents | st.lists(_parts, max_size=2)})
_messages = st.lists(_message | st.just({"role": "user"}) | st.just({}), max_size=3)
_rows = st.lists(
    st.fixed_dictionaries({"prompt": _contents | _messages, "answer": _contents | odd_value})
    | st.dictionaries(st.sampled_from(_ROW_NAMES), odd_value | _messages, max_size=4),
    min_size=1,
    max_size=6,
)


def _row_line(row: Any) -> str:
    return json.dumps(row)  # NaN and Infinity as other libraries write them


_INSERTED = ("\x00", "\xff", "NaN", "}", '"', "\n", "{", "é")
_CONTENTS = ("", "\x00" * 64, "not what it says", "[" * 100_000, "{}", "[]", "null", "\xff\xfe")
_bytes_changes = (
    st.tuples(st.just("cut"), st.floats(0, 1))
    | st.tuples(st.just("put"), st.tuples(st.floats(0, 1), st.sampled_from(_INSERTED)))
    | st.tuples(st.just("write"), st.sampled_from(_CONTENTS))
    | st.tuples(st.sampled_from(("remove", "folder", "twice", "dangling", "unreadable")), st.none())
)


@st.composite
def json_change(draw: st.DrawFn) -> tuple[str, Any]:
    """Some value of a JSON or YAML file, chosen by where it stands, becomes another one, or its key goes."""
    where = draw(st.floats(0, 1))
    return ("drop", where) if draw(st.booleans()) and draw(st.booleans()) else ("set", (where, draw(odd_value)))


_weights_changes = st.tuples(
    st.sampled_from(("drop-tensor", "rename-tensor", "reshape-tensor", "nan-tensor", "int-tensor", "more-tensor")),
    st.floats(0, 1),
)

MODEL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)
RUN_FILES = (
    *("recipe.yaml", "summary.json", "metrics.jsonl", "examples.json", "checkpoints/step-000001/state.json"),
    *("checkpoints/step-000001/manifest.json", "checkpoints/step-000001/tensors-0000.safetensors"),
    *("rollouts/step-000001.parquet", "rollouts", "checkpoints", "model", "report.html", "tensorboard"),
    *("trees/step-000001.parquet", "trees/step-000002.parquet", "trees", "digests/step-000002.json", "digests"),
)


@st.composite
def model_changes(draw: st.DrawFn, folder: str = "model") -> tuple[str, str, Any]:
    if draw(st.booleans()):
        how, what = draw(_weights_changes | _bytes_changes)
        return (f"{folder}/model.safetensors", how, what)
    file = f"{folder}/{draw(st.sampled_from(MODEL_FILES))}"
    how, what = draw(json_change() if file.endswith(".json") and draw(st.booleans()) else _bytes_changes)
    return (file, how, what)


@st.composite
def run_changes(draw: st.DrawFn, name: str) -> tuple[str, str, Any]:
    file = draw(st.sampled_from(RUN_FILES))
    path = f"runs/{name}/{file}"
    if file == "model":
        return draw(model_changes(path))
    structured = file.endswith((".json", ".yaml"))
    how, what = draw(json_change() if structured and draw(st.booleans()) else _bytes_changes)
    return (path, how, what)


@st.composite
def data_changes(draw: st.DrawFn, file: str = "data.jsonl") -> tuple[str, str, Any]:
    if draw(st.integers(0, 3)):
        return (file, "write", "".join(_row_line(row) + "\n" for row in draw(_rows)))
    return (file, *draw(_bytes_changes))


TEMPLATES = (
    "{{ raise_exception('System role not supported') }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for m in messages %}{{ m['content'] }}",
    "{{ messages }}{{ nothing.at.all }}",
    "{{ ''.__class__.__mro__ }}",
    "constant",
    "",
    "{{ 'x' * 10000000 }}",
    "{{ lipsum(n=1000000) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 'x' | center(1000000000) }}",
    "{{ ('x' * 10**8) | replace('x', 'yy') }}",
    "{% for i in range(3000) %}{% for j in range(3000) %}{% for k in range(9) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "\x1b[2J{% for m in messages %}{{ m['content'] }}{% endfor %}",
)


TELLS_TOOLS = "{{ tools | tojson }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def apply(case: Case, folder: Path) -> None:
    """Do to the files of a folder what a case says."""
    for name, how, what in case.changes:
        path = folder / name
        if not (path.parent.is_dir() and os.access(path.parent, os.R_OK | os.X_OK)):
            continue  # an earlier change has made it something else
        old = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b""
        match how:
            case "cut":
                _write(path, old[: int(len(old) * what)])
            case "put":
                at = int(len(old) * what[0])
                _write(path, old[:at] + what[1].encode("latin-1", "replace") + old[at:])
            case "write":
                _write(path, what.encode("utf-8", "surrogatepass"))
            case "base64":
                _write(path, base64.b64decode(what))
            case "remove" | "folder" | "dangling":
                _away(path)
                if how == "folder":
                    path.mkdir()
                if how == "dangling":
                    path.symlink_to("not-there")
            case "unreadable":
                if path.exists():
                    os.chmod(path, 0)
            case "twice":
                _write(path, old + old)
            case "swap":
                _write(path, old.replace(what[0].encode(), what[1].encode()))
            case "set" | "drop":
                _change_document(path, old, how, what)
            case _:
                _change_weights(path, how, what)


def _away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        removed(path)
    else:
        path.unlink(missing_ok=True)


def removed(folder: Path) -> None:
    """Take away a folder, and what a case made unreadable in it."""
    if folder.exists():
        folder.chmod(0o700)
        for above, folders, _ in os.walk(folder):
            for path in (Path(above) / name for name in folders):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)


def _write(path: Path, content: bytes) -> None:
    _away(path)
    path.write_bytes(content)


def _change_document(path: Path, old: bytes, how: str, what: Any) -> None:
    try:
        document = yaml.safe_load(old) if path.suffix == ".yaml" else json.loads(old)
    except (ValueError, yaml.YAMLError):
        return  # an earlier change has made it something else
    places = _places(document)
    if not places:
        return
    where = what if how == "drop" else what[0]
    container, key = places[min(int(where * len(places)), len(places) - 1)]
    if how == "drop":
        del container[key]
    else:
        container[key] = what[1]
    text = yaml.safe_dump(document, sort_keys=False) if path.suffix == ".yaml" else json.dumps(document)
    _write(path, text.encode("utf-8", "surrogatepass"))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in it, at most some hundred: a tokenizer's vocabulary is not all there is."""
    found: list[tuple[Any, Any]] = []
    layer = [value]
    while layer and len(found) < 300:
        inner: list[Any] = []
        for each in layer:
            keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else []
            found += [(each, key) for key in list(keys)[:20]]
            inner += [each[key] for key in list(keys)[:20]]
        layer = inner
    return found


def _change_weights(path: Path, how: str, where: float) -> None:
    try:
        tensors = load_file(path)
    except Exception:
        return  # an earlier change has made it something else
    names = sorted(tensors)
    name = names[min(int(where * len(names)), len(names) - 1)]
    match how:
        case "drop-tensor":
            del tensors[name]
        case "rename-tensor":
            tensors[f"{name}.renamed"] = tensors.pop(name)
        case "reshape-tensor":
            tensors[name] = np.concatenate([tensors[name]] * 2)
        case "nan-tensor":
            tensors[name] = np.full_like(tensors[name], np.nan)
        case "int-tensor":
            tensors[name] = np.zeros(tensors[name].shape, np.int32)
        case "more-tensor":
            tensors["surplus.weight"] = np.zeros((2, 2), np.float32)
    _away(path)
    save_file(tensors, path, metadata={"format": "pt"})


# --- commands ---------------------------------------------------------------------------------------------------------

_flags = st.sampled_from(((), (), (), ("--json",), ("--overwrite",), ("--resume",), ("--resume", "--overwrite")))
_ODD_NAMES = ("done", "stopped", "..", "a/b", "", "x" * 300, "\x1b[2J", "-x", "con trol")
_recipes = mostly(st.just("grpo"), st.sampled_from(("mine.yaml", *recipe_names())), one_in=4)
_OUTPUTS = (
    *("out.json", "out", "data.jsonl", "model", "model/model.safetensors", "model/new", "runs/done", "notes.txt", "."),
    *("runs/done/recipe.yaml", "nowhere/out.json", "/proc/x", "/dev/full", "", "x" * 300, "a\x00b", "data.jsonl/x"),
)
_MODELS = ("model", "notes.txt", "nowhere", "base", "scratch", "runs/done/model", "all-MiniLM-L6-v2", "reference", ".")
_REWARDS = (
    *("reward.py:score", "reward.py:broken", "reward.py:odd", "number", "math", "[exact, format]", "task", "exact"),
    *("{kind: trl, function: reward.py:score}", "reward.py:not_a_function", "nowhere.py:score"),
    *(
        "reward.py:as_trl",
        "reward.py:get_longest",
        "reward:as_trl",
        "{function: reward.py:get_longest, arguments: [1]}",
    ),
    *(
        f"{{function: reward.py:{name}, arguments: {{{word}}}}}"
        for name in ("get_longest", "as_trl", "later")
        for word in ("most: 0", "most: x", "most: .nan", "completions: 3", "1: 2", "most: {a: [null]}")
    ),
    *("drm", "{kind: drm, coherence: null, unanswered: 0}", "[reward.py:later, {kind: drm, weight: 0}]"),
    *(
        f"[reward.py:later, {{kind: drm, weight: 0, unanswered: 0, extract: {{after: '0'}}, coherence: {scorer}}}]"
        for scorer in (
            "judge",
            "{kind: judge, endpoint: {url: 'http://127.0.0.1:9/v1', model: m, retries: 1, backoff_seconds: 0}}",
            "{kind: judge, endpoint: {url: 'file:///etc/passwd', model: m}}",
            "{kind: step-consistency, mark: '+', updates: 2}",
            *(f"{{kind: {kind}, model: {path}}}" for kind in ("encoder", "reranker", "causal") for path in _MODELS),
        )
    ),
    *("code", "{kind: code, limits: {seconds: 0.1, memory_mb: 64}}", "{kind: code, sandbox: none}"),
    *(
        "{kind: code, tests: note, sandbox: landlock}",
        "{kind: code, tests: nowhere}",
        "{kind: code-efficiency, reference: note}",
        "{kind: code-lines, reference: note}",
        "{kind: code-lines, reference: completion, tests: note, separator: ';'}",
        "[exact, {kind: feedback, endpoint: 1}]",
        "[exact, {kind: feedback, judge: {endpoint: {url: 'http://127.0.0.1:9/v1', model: m, retries: 1}}}]",
        "ranking",
        *(f"{{kind: ranking, column: {column}}}" for column in ("labels", "rubric", "level", "nowhere")),
        "{kind: judge, keep: 1, judge: {votes: 2, temperature: 1}}",
        "[exact, {kind: renorm, of: {kind: steps}}]",
        *(f"{{kind: principles, model: {path}, principles: ['{{principle}}', a]}}" for path in _MODELS),
        "{kind: principles, model: base, principles: [a], words: [é, ü], ask: '{principle}{principle}'}",
        "[exact, {kind: renorm, of: {kind: principles, model: base, principles: [a], at: turns}}]",
    ),
    *("ends.py:score", "ends.py:exits"),
)
_IDLE = (
    *(
        "replay={kind: own, most: 3, least: 10}",
        "replay={kind: shared, runs: [/etc]}",
        "replay={kind: shared, runs: [model]}",
    ),
    *("replay={kind: shared, runs: ['../..']}", "guidance=[prefix]", "model.lora.rank=1000000", "model.lora.rank=3"),
    *("rollout={kind: turns, environment: {kind: corpus, path: /dev/zero}}", "tasks=loop", "data=loop"),
    *("rollout={kind: turns, environment: {kind: corpus, path: plain.txt}}", "output=/dev/null/x"),
    *(
        f"rollout={{kind: turns, environment: {{kind: tools, functions: ['tools.py:{name}']}}}}"
        for name in ("ok", "prints", "ends", "half", "nothing")
    ),
)
"""Settings that once did nothing, or too much, without a word."""
_CONSTRAINTS = st.sampled_from(("漢+", "[é]", "1", "[0-9]{1,3}", "(a|aa)+", "\\ud800", "x{1000}{1000}")).map(
    lambda pattern: {"kind": "regex", "pattern": pattern}
) | st.sampled_from(
    ({"const": "漢"}, {"type": "object", "required": ["漢"]}, {"enum": []}, {"type": "integer"}, {})
).map(lambda schema: {"kind": "json-schema", "json_schema": schema})


def _own(output: str, name: str) -> tuple[str, ...]:
    """Where a run may write: its own folder, if that is part of no input."""
    path = os.path.normpath(os.path.join(output, name))
    refused = any(path == each or path.startswith(f"{each}/") for each in INPUTS)
    return () if refused or path.startswith("..") else (path,)


@st.composite
def train_cases(draw: st.DrawFn) -> Case:
    """One thing is odd, now and then more: of two odd things the second is seldom reached."""
    recipe, name, output, flags = draw(_recipes), "new", "runs", ()
    words: list[str] = []
    changes: list[Any] = []
    odd = draw(st.lists(st.sampled_from(("keys",) * 6 + (*_ODD,)), min_size=1, max_size=2))
    for what in odd if draw(st.integers(0, 3)) == 2 else odd[:1]:
        match what:
            case "keys":
                words += draw(st.lists(overrides(recipe), min_size=1, max_size=2))
            case "recipe":
                recipe = draw(odd_text)
            case "name":
                name, flags = draw(st.sampled_from(_ODD_NAMES)), draw(_flags)
            case "output":
                output = draw(st.sampled_from(_OUTPUTS))
                words.append(f"output={output}")
            case "reward":
                words.append(f"reward={draw(st.sampled_from(_REWARDS))}")
            case "model":
                changes += draw(st.lists(model_changes(), min_size=1, max_size=2))
            case "data":
                changes.append(draw(data_changes()))
            case "chats":
                words.append("tasks=chats.jsonl")
                changes.append(draw(data_changes("chats.jsonl")))
            case "template":
                words.append(f"model.chat_template={draw(st.sampled_from(('template.jinja', 'plain')))}")
                changes.append(("template.jinja", "write", draw(st.sampled_from(TEMPLATES))))
            case "text":
                file, cut = draw(st.sampled_from(("plain.txt", "plain.txt", "data.jsonl", "rows.json"))), draw(_cuts)
                words.append(f"tasks={{kind: text, path: {file}, column: prompt, heldout_share: 0.5, {cut}}}")
                words.append(f"reward={draw(st.sampled_from(_TEXT_REWARDS))}")
                changes.append((file, *draw(_bytes_changes)))
            case "idle":
                words.append(draw(st.sampled_from(_IDLE)))
                if draw(st.booleans()):
                    words.append("model.chat_template=template.jinja")
                    changes.append(("template.jinja", "write", TELLS_TOOLS))
            case "constraint":
                words.append(f"rollout.sampling.constraint={json.dumps(draw(_CONSTRAINTS))}")
            case "tables":
                file = draw(st.sampled_from(("data.parquet", "rows.json")))
                words.append(f"tasks={file}")
                changes.append((file, *draw(_bytes_changes)))
    argv = ("train", recipe, *SMALL, *words, "--name", name, *flags)
    return Case(argv, tuple(changes), _own(output, name or Path(recipe).stem), "train")


_ODD = (
    *("recipe", "name", "output", "reward", "model", "model", "data", "data", "chats", "template", "tables", "text"),
    *("idle", "constraint"),
)

_cuts = st.sampled_from(
    ("cut: characters", "cut: words, documents: lines", "cut: mark, mark: '='", "middle_share: 1, limit: 3")
) | st.sampled_from(("pieces", "earliest", "latest", "longest", "template", "mark", "heldout_path")).flatmap(
    lambda key: odd_text.map(lambda text: f"{key}: {json.dumps(text)}")
)
_TEXT_REWARDS = (
    *("text-overlap", "{kind: information-gain, baseline: policy, close: '#'}", "information-gain", "distance"),
    *("{kind: text-overlap, measure: prefix, reference: rest, least: 3}", "{kind: text-overlap, measure: bleu, n: 4}"),
    *("{kind: distance, unit: month}", "{kind: distance, lenient: {column: level}}"),
)


@st.composite
def recipe_file_cases(draw: st.DrawFn) -> Case:
    """A recipe's file that somebody else wrote."""
    recipe: dict[str, Any] = {"extends": "grpo"}
    for key in draw(st.lists(st.sampled_from(every_key()), max_size=3)):
        inner: Any = draw(odd_value)
        *above, last = key.split(".")
        at = recipe
        for part in above:
            at = at.setdefault(part, {}) if isinstance(at.get(part, {}), dict) else {}
        at[last] = inner
    text = yaml.safe_dump(recipe, allow_unicode=True) if draw(st.integers(0, 3)) else draw(odd_text)
    changes = (("other.yaml", "write", text),)
    return Case(("train", "other.yaml", *SMALL, "--name", "new"), changes, ("runs/new",), "recipe file")


_CHANGED = "has changed since the run began"


@st.composite
def resume_cases(draw: st.DrawFn) -> Case:
    if draw(st.integers(0, 3)) == 0:  # nothing of the run is odd: what it reads is another, which is said
        file, how, what = draw(st.sampled_from((("data.jsonl", "swap", "12"), ("reward.py", "swap", "79"))))
        argv = ("train", "grpo", *SMALL, *RECORDED, "--name", "stopped", "--resume")
        return Case(argv, ((file, how, what),), ("runs/stopped",), "resume", says=_CHANGED)
    changes = draw(st.lists(run_changes("stopped"), max_size=2))
    keys = draw(st.lists(overrides(), max_size=1)) if draw(st.booleans()) else []
    argv = ("train", "grpo", *SMALL, *RECORDED, *keys, "--name", "stopped", "--resume")
    return Case(argv, tuple(changes), ("runs/stopped",), "resume")


@st.composite
def evaluation_cases(draw: st.DrawFn) -> Case:
    """A model measured, searched with or asked for hints; one thing is odd."""
    command = draw(st.sampled_from(("eval", "eval", "search", "hints")))
    model, words, changes = draw(st.sampled_from(("model", "runs/done"))), list[str](), list[Any]()
    output = "out.jsonl" if command == "hints" else draw(st.sampled_from((None, "out.json", "new/out.json")))
    match draw(st.sampled_from(("model", "name", "run", "data", "keys", "columns", "output", "output"))):
        case "model":
            model, changes = "model", draw(st.lists(model_changes(), min_size=1, max_size=2))
        case "name":
            model = draw(st.sampled_from(("runs/stopped", "nowhere", "data.jsonl", "base")) | odd_text)
        case "run":
            model, changes = "runs/done", draw(st.lists(run_changes("done"), min_size=1, max_size=2))
        case "data":
            changes = [draw(data_changes())]
        case "keys":
            words = draw(st.lists(odd_text | overrides(), min_size=1, max_size=1))
        case "columns":
            words = [f"tasks.columns.{draw(st.sampled_from(('prompt', 'answer', 'level')))}={draw(odd_text)}"]
        case "output":
            output = draw(st.sampled_from(_OUTPUTS))
    options = ["--n", "1", "--max-tokens", "4"] + ([] if output is None else ["--output", output])
    options += draw(st.sampled_from(([], ["--json"])))
    if command == "hints":
        argv = ["hints", "data.jsonl", "--model", model, "--retries", "0", "--items", "1"]
    else:
        argv = [command, model, "--tasks", "data.jsonl", "--reward", "exact"]
        strategy = draw(st.sampled_from(("best-of-n", "beam", "all", "mcts")))
        argv += ["--k", "1"] if command == "eval" else ["--sizes", "1", "--strategy", strategy]
    # A new file beside a model that is no input of this command is the user's wish.
    inputs = [each for each in (*INPUTS, "runs") if each != "model" or model == "model"]
    taken = output is None or output == "model" or any(f"{output}/".startswith(f"{each}/") for each in inputs)
    own = () if taken else (output,)
    return Case((*argv, *options, *words), tuple(changes), own, command)


@st.composite
def reading_cases(draw: st.DrawFn) -> Case:
    """Commands that only read, and words that are none."""
    changes: list[Any] = []
    match draw(st.sampled_from(("damaged", "view", "recipes", "components", "words"))):
        case "damaged":
            changes = draw(st.lists(run_changes("done"), min_size=1, max_size=2))
            argv = ["view", "runs/done"]
        case "view":
            argv = [
                "view",
                draw(st.sampled_from(("model", "nowhere", "data.jsonl", "", "runs", "runs/done")) | odd_text),
            ]
        case "recipes":
            words = draw(st.sampled_from(((), ("show", "grpo"), ("show", "grpo"), ("show",), ("list",))))
            argv = ["recipes", *words, *draw(st.lists(overrides(), max_size=2))]
        case "components":
            argv = ["components", *draw(st.lists(st.sampled_from(tuple(SLOTS)) | odd_text, max_size=2))]
        case _:
            words = ("train", "eval", "--help", "--json", "--version", "-h", "--name", "compare", "grpo")
            argv = draw(st.lists(st.sampled_from(words) | odd_text, max_size=4))
    argv += draw(st.sampled_from(([], ["--json"], ["--json"], ["x" * 100_000] if argv[:1] != ["view"] else [])))
    # Words may make up "train grpo", which trains.
    own = ("runs/done/report.html",) if argv[:1] == ["view"] else ("runs/grpo",)
    return Case(tuple(argv), tuple(changes), own, "reading")


@st.composite
def comparison_cases(draw: st.DrawFn) -> Case:
    words = draw(st.lists(overrides() | overrides().map("grpo:{}".format) | odd_text, max_size=1))
    options = ["--seeds", draw(mostly(st.just("1"), st.sampled_from(("0", "-1", "99999999999", "x", "2")), one_in=3))]
    if draw(st.booleans()):
        tokens = st.sampled_from(("1", "0", "-1", "1e3", "999999999999"))
        options += ["--tokens", draw(mostly(st.just("20"), tokens, one_in=3))]
    other = draw(st.sampled_from(("rloo", "grpo@two", "mine.yaml")))
    argv = ("compare", "grpo", other, *SMALL, *words, *options, "--name", "c")
    return Case(argv, (), ("runs/compare-c",), "compare")


@st.composite
def replay_cases(draw: st.DrawFn) -> Case:
    """A recorded step, replayed with one thing odd."""
    run, step, words, changes = "runs/done", "2", list[str](), list[Any]()
    output = draw(st.sampled_from((None, None, "out.parquet")))
    match draw(st.sampled_from(("run", "run", "name", "step", "keys", "keys", "output"))):
        case "run":
            changes = draw(st.lists(run_changes("done"), min_size=1, max_size=2))
        case "name":
            run = draw(st.sampled_from(("runs/stopped", "nowhere", "data.jsonl", "model", "runs")) | odd_text)
        case "step":
            step = draw(st.sampled_from(("0", "1", "3", "-1", "99999999999")) | odd_text)
        case "keys":
            words = draw(st.lists(overrides(), min_size=1, max_size=2))
        case "output":
            output = draw(st.sampled_from(_OUTPUTS))
    options = ["--step", step] + ([] if output is None else ["--output", output])
    options += draw(st.sampled_from(([], ["--json"])))
    taken = output is None or any(f"{output}/".startswith(f"{each}/") for each in (*INPUTS, "runs"))
    return Case(("replay", run, *options, *words), tuple(changes), () if taken else (output,), "replay")


@st.composite
def recorded_cases(draw: st.DrawFn) -> Case:
    """A run's trees trained on, alone or beside others, or its problems drawn by their accuracy, with one thing odd."""
    path, words, changes = "runs/done", list[str](), list[Any]()
    match draw(st.sampled_from(("run", "run", "name", "keys"))):
        case "run":
            changes = draw(st.lists(run_changes("done"), min_size=1, max_size=2))
        case "name":
            path = draw(st.sampled_from(("runs/stopped", "nowhere", "data.jsonl", "model", "runs", ".")) | odd_text)
        case "keys":
            keys = ("most", "max_age", "from_stage", "low", "high")
            where = draw(st.sampled_from(("stages.0.data", "stages.0.replay", "stages.1.curriculum")))
            words = [f"{where}.{draw(st.sampled_from(keys))}={draw(odd_text)}"]
    offline = {"kind": "offline", "data": {"kind": "recorded", "path": path}, "ratio": "step"}
    of_steps = {"kind": "dpo", "of": "siblings", "advantage": 1}
    offline["objective"] = draw(st.sampled_from(("dpo", of_steps, "mpo", "ppo-clip", "gspo")))
    if draw(st.booleans()):
        other = draw(st.sampled_from(("model", "base", "nowhere", "data.jsonl")) | odd_text)
        offline["reference"] = {"average": ["policy", other]}
    online = {"kind": "online", "curriculum": {"kind": "middling", "path": path, "low": 0}}
    shared = {"kind": "online", "replay": {"kind": "shared", "runs": [path, "nobody"]}}
    stages = draw(st.sampled_from(([offline, online], [shared])))
    changes.append(("cascade.yaml", "write", yaml.safe_dump({"stages": stages}, allow_unicode=True)))
    argv = ("train", "cascade.yaml", *SMALL, *words, "--name", "new")
    return Case(argv, tuple(changes), ("runs/new",), "recorded")


@st.composite
def doctor_cases(draw: st.DrawFn) -> Case:
    """A model examined that is odd, or under odd settings: no file is left behind."""
    model, words, changes = "model", list[str](), list[Any]()
    match draw(st.sampled_from(("model", "model", "name", "keys"))):
        case "model":
            changes = draw(st.lists(model_changes(), min_size=1, max_size=2))
        case "name":
            model = draw(st.sampled_from(("runs/done", "runs/stopped", "nowhere", "data.jsonl")) | odd_text)
        case "keys":
            words = draw(st.lists(overrides(), min_size=1, max_size=2))
    options = ["--samples", "4", "--tokens", "4", *draw(st.sampled_from(([], ["--json"])))]
    return Case(("doctor", model, *options, *words), tuple(changes), (), "doctor")


@st.composite
def same_cases(draw: st.DrawFn) -> Case:
    """Two runs compared, one of them damaged or none."""
    changes = draw(st.lists(run_changes("done"), max_size=2))
    other = draw(mostly(st.just("runs/stopped"), st.sampled_from(("runs/done", "nowhere", "model", ".")) | odd_text))
    return Case(("same", "runs/done", other, *draw(st.sampled_from(([], ["--json"])))), tuple(changes), (), "same")


@st.composite
def grade_cases(draw: st.DrawFn) -> Case:
    """Completions in a file or a run graded; the rows are odd, or one thing of the command is."""
    file, reward, words, changes = "graded.jsonl", draw(st.sampled_from(_GRADERS)), list[str](), list[Any]()
    output = draw(st.sampled_from((None, None, "out.jsonl")))
    rows = "".join(_row_line(row) + "\n" for row in draw(_graded_rows))
    match draw(st.sampled_from(("rows", "rows", "bytes", "file", "reward", "keys", "run", "output"))):
        case "bytes":
            changes = [(file, *draw(_bytes_changes))]
        case "file":
            file = draw(
                st.sampled_from(("data.parquet", "data.jsonl", "rows.json", "model", "nowhere.jsonl")) | odd_text
            )
        case "reward":
            reward = draw(st.sampled_from((*kinds("reward"), *recipe_names(), "mine.yaml", *_REWARDS)) | odd_text)
        case "keys":
            key = draw(st.sampled_from(("reward.extract", "reward.pattern", "reward.n", "columns.answer", "reward")))
            words = [draw(overrides() | odd_text | odd_text.map(f"{key}={{}}".format))]
        case "run":
            file, changes = "runs/done", draw(st.lists(run_changes("done"), max_size=2))
            reward = draw(st.sampled_from((None, reward)))
        case "output":
            output = draw(st.sampled_from(_OUTPUTS))
    options = ["--output", output] if output is not None else []
    options += ["--reward", reward] if reward is not None else []
    options += draw(st.sampled_from(([], ["--json"])))
    # A new file beside a model that is no input of this command is the user's wish.
    inputs = [each for each in (*INPUTS, "graded.jsonl", "runs") if each != "model"]
    taken = output is None or output == "model" or any(f"{output}/".startswith(f"{each}/") for each in inputs)
    first = ("graded.jsonl", "write", rows)
    return Case(("grade", file, *options, *words), (first, *changes), () if taken else (output,), "grade")


_GRADERS = (
    *("exact", "number", "choice", "math", "json-schema", "regex", "sql", "grpo", "open-rs", "reward.py:score"),
    *(
        "[exact, length-cosine]",
        "{kind: regex, pattern: '(a|aa)+'}",
        "{kind: json-schema, json_schema: {type: object}}",
    ),
)
_graded_rows = st.lists(
    st.dictionaries(
        st.sampled_from(
            ("prompt", "completion", "answer", "id", "group", "tokens", "pattern", "json_schema", "schema", "finish")
        ),
        odd_value | _contents | st.sampled_from(("SELECT 1", "CREATE TABLE t (a)", "(a|aa)+$", "\\boxed{3}", "#### 3")),
        max_size=7,
    )
    | odd_value,
    max_size=5,
)


@st.composite
def attack_cases(draw: st.DrawFn) -> Case:
    """Completions that mean harm: each has its grade, and no program a good one that it has not earned."""
    kind = draw(st.sampled_from(("code", "code", "math", "sql")))
    reward, rows = draw(attacks(kind))
    scores = (1.0, *[0.0] * (len(rows) - 1)) if kind == "code" else (None,) * len(rows)
    changes = (("attack.jsonl", "write", "".join(_row_line(row) + "\n" for row in rows)),)
    return Case(("grade", "attack.jsonl", "--reward", reward, "--json"), changes, (), f"attack {kind}", scores)


@st.composite
def factor_cases(draw: st.DrawFn) -> Case:
    """A reward model that learns from what nothing gives."""
    by = draw(st.sampled_from(("nowhere", "correct", "tokens", "outcome")) | odd_text)
    few = [word for word in SMALL if not word.startswith("steps")]
    argv = ("train", "heron", *few, f"factors=[{{by: {json.dumps(by)}}}]", "--name", "new")
    return Case(argv, (), ("runs/new",), "factors")


@st.composite
def boundary_cases(draw: st.DrawFn) -> Case:
    """Models compared by their samples; one thing is odd."""
    models, words, changes = ["model", "runs/done"], list[str](), list[Any]()
    output, unsolved, hints = draw(st.sampled_from((None, "study"))), None, None
    match draw(
        st.sampled_from(("model", "name", "run", "file", "file", "data", "keys", "output", "unsolved", "hints"))
    ):
        case "model":
            changes = draw(st.lists(model_changes(), min_size=1, max_size=2))
        case "name":
            names = ("runs/stopped", "nowhere", "data.jsonl", "base", "model@x", "runs/done@../x", "@", "model@")
            models[draw(st.integers(0, 1))] = draw(st.sampled_from(names) | odd_text)
        case "run":
            changes = draw(st.lists(run_changes("done"), min_size=1, max_size=2))
        case "file":
            lines = "".join(_row_line(line) + "\n" for line in draw(_sampled))
            changes = [("samples.jsonl", "write", lines), *draw(st.lists(_bytes_of("samples.jsonl"), max_size=1))]
            models = ["samples.jsonl", draw(st.sampled_from(("samples.jsonl@b", "model")))]
        case "data":
            changes = [draw(data_changes())]
        case "keys":
            words = [draw(odd_text | overrides() | odd_text.map("samples={}".format))]
        case "output":
            output = draw(st.sampled_from(_OUTPUTS))
        case "unsolved":
            unsolved = draw(st.sampled_from((*_OUTPUTS, "hard.jsonl", "data.jsonl", "model/x.jsonl")))
        case "hints":
            hints = draw(st.sampled_from(("all", "planning", "", ",")) | odd_text)
    live = any(not each.partition("@")[0].endswith(".jsonl") for each in models)
    options = ["--tasks", "data.jsonl", "--reward", "exact"] if live else []
    options += ["--n", "1", "--samples", "2", "--max-tokens", "4", *draw(st.sampled_from(([], ["--json"])))]
    for name, value in (("--output", output), ("--unsolved", unsolved), ("--hints", hints)):
        options += [] if value is None else [name, value]
    read = [*INPUTS, "samples.jsonl", "runs"]
    own = [each for each in (output, unsolved) if each and not any(f"{each}/".startswith(f"{one}/") for one in read)]
    return Case(("boundary", *models, *options, *words), tuple(changes), tuple(own), "boundary")


@st.composite
def sparsity_cases(draw: st.DrawFn) -> Case:
    """Weights compared; one model, or one option, is odd."""
    models, options, changes, output = ["model", "runs/done"], list[str](), list[Any](), None
    match draw(st.sampled_from(("model", "model", "run", "name", "atol", "output"))):
        case "model":
            changes = draw(st.lists(model_changes(), min_size=1, max_size=2))
        case "run":
            changes = draw(st.lists(model_changes("runs/done/model"), min_size=1, max_size=2))
        case "name":
            names = ("runs/stopped", "nowhere", "data.jsonl", "base", "scratch", "runs")
            models[draw(st.integers(0, 1))] = draw(st.sampled_from(names) | odd_text)
        case "atol":
            options = ["--atol", draw(odd_text)]
        case "output":
            output = draw(st.sampled_from((*_OUTPUTS, "out.json")))
    models += draw(st.sampled_from(([], ["model"])))
    options += draw(st.sampled_from(([], ["--json"], ["--no-rank"]))) + ([] if output is None else ["--output", output])
    taken = output is None or any(f"{output}/".startswith(f"{each}/") for each in (*INPUTS, "runs"))
    return Case(("sparsity", *models, *options), tuple(changes), () if taken else (output,), "sparsity")


@st.composite
def push_cases(draw: st.DrawFn) -> Case:
    """A run that is none, or a name that is none; the hub itself is out of reach."""
    run = draw(st.sampled_from(("runs/done", "runs/stopped", "model", "nowhere", "data.jsonl", "runs")) | odd_text)
    name = draw(st.sampled_from(("a/b", "a", "a/b/c", "", "../x", "a b/c")) | odd_text)
    changes: list[Any] = draw(st.sampled_from(([], [("runs/done/summary.json", "write", "[")])))
    options = draw(st.sampled_from(([], ["--best"], ["--public"], ["--json"])))
    return Case(("push", run, name, *options), tuple(changes), (), "push")


_sampled = st.lists(
    st.fixed_dictionaries({"task": st.sampled_from(("a", "b", "data/0", 3)), "correct": st.booleans() | st.none()})
    | st.dictionaries(st.sampled_from(("task", "id", "correct", "level", "hint", "right", "sampled_with")), odd_value),
    max_size=6,
)


def _bytes_of(file: str) -> st.SearchStrategy[Any]:
    return _bytes_changes.map(lambda change: (file, *change))


_own_rows = st.lists(
    st.fixed_dictionaries({"messages": _messages})
    | st.fixed_dictionaries({"prompt": _contents | _messages, "completion": _contents | _messages})
    | st.fixed_dictionaries({"prompt": _contents, "chosen": _contents | _messages, "rejected": _contents | _messages})
    | st.dictionaries(
        st.sampled_from(
            ("prompt", "question", "messages", "completion", "chosen", "rejected", "images", "reward_model")
        ),
        odd_value | _messages,
        max_size=4,
    )
    | odd_value,
    min_size=1,
    max_size=8,
)


@st.composite
def own_rows_cases(draw: st.DrawFn) -> Case:
    """Training on one's own rows, where some cannot be used."""
    recipe, key = draw(st.sampled_from((("sft", "tasks"), ("dpo", "data"), ("grpo", "tasks"), ("kto", "data"))))
    file = draw(st.sampled_from(("data.jsonl", "data.jsonl", "data.parquet")))
    bad_rows = draw(st.sampled_from(("refuse", "drop", "drop") + (("cut", "cut") if key == "tasks" else ())))
    words = [f"{key}={file}", f"{key}.bad_rows={bad_rows}"]
    if key == "tasks":
        words += draw(st.sampled_from(([], ["tasks.max_prompt_tokens=3"], ["tasks.heldout_share=0"])))
    words += draw(st.sampled_from(([], ["epochs=1"], ["epochs=1000000"], ["evaluate.n=0"])))
    words += draw(st.lists(overrides(recipe), max_size=1)) if draw(st.integers(0, 3)) == 0 else []
    whole = {"prompt": "1+2=", "completion": "3", "answer": "3", "chosen": "3", "rejected": "4"}
    rows = "".join(_row_line(row) + "\n" for row in [*[whole] * draw(st.sampled_from((0, 20))), *draw(_own_rows)])
    changes: list[Any] = [] if file == "data.parquet" else [(file, "write", rows)]
    if draw(st.integers(0, 2)) == 0:
        changes.append((file, *draw(_bytes_changes)))
    without = ("tasks=", "tasks.", "reward") if key == "tasks" else ("tasks=", "tasks.")
    few = [word for word in SMALL if not word.startswith(without)]
    few = [word for word in few if recipe != "sft" or not word.startswith("rollout")]
    return Case(("train", recipe, *few, *words, "--name", "new"), tuple(changes), ("runs/new",), "own rows")


def cases() -> st.SearchStrategy[Case]:
    few = [evaluation_cases(), reading_cases(), resume_cases(), recipe_file_cases(), replay_cases(), recorded_cases()]
    few.append(own_rows_cases())
    rare = [comparison_cases(), doctor_cases(), same_cases(), grade_cases(), boundary_cases(), sparsity_cases()]
    rare += [push_cases(), factor_cases(), attack_cases(), attack_cases(), attack_cases()]
    return st.one_of(*[train_cases()] * 4, *few, *few, *rare)
