"""Hints are written by whoever answers, row by row; whatever an endpoint does, the run goes on and counts it."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lyceum.analysis.hints import write as hints
from lyceum.analysis.hints.ladders import LadderSettings, Nonsense, read_ladder, request_for, without_leaks
from lyceum.analysis.hints.write import write_hints
from lyceum.cli import main
from lyceum.core.types import Hint, Task
from lyceum.models.load import save_policy
from lyceum.models.policy import Policy
from lyceum.models.scratch import build_scratch
from lyceum.tasks.base import HintsLeak
from lyceum.tasks.dataset import Columns, Dataset
from lyceum.utils.errors import RecipeError

GOOD = {
    "knowledge": ["carry the tens", "a unit is ten"],
    "planning": ["add the units first"],
    "solution": ["take the units of both", "write them down"],
}

DRIP = "a byte at a time, and at that slowly: " + "." * 60


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(hints, "PAUSE_SECONDS", 0.001)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def endpoint(answer):
    """A plain server of chat completions: ``answer(problem, nth time it is asked, body)`` is a text, a ladder, a status
    code, or seconds of silence. Gives its URL and the requests that came."""
    seen: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = body["messages"][-1]["content"]
            problem = re.search(r"Problem:\n(.*)", text)[1]
            nth = sum(request["problem"] == problem for request in seen)
            seen.append({"problem": problem, "path": self.path, "key": self.headers["Authorization"]} | body)
            said = answer(problem, nth, body)
            if isinstance(said, float):
                time.sleep(said)
                said = 503
            status = said if isinstance(said, int) else 200
            content = json.dumps(said) if isinstance(said, dict) else said
            message = {"role": "assistant", "content": content if status == 200 else ""}
            out = json.dumps({"choices": [{"index": 0, "message": message}]} if status == 200 else {"error": "no"})
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                for byte in out if said == DRIP else [out]:
                    self.wfile.write(byte.encode())
                    time.sleep(0.05 if said == DRIP else 0)
            except (BrokenPipeError, ConnectionResetError):
                pass  # who asked has given up

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def data(tmp_path):
    """Three problems whose answers are 42, 15 and 7."""
    rows = [("17 + 25", "42"), ("8 + 7", "15"), ("3 + 4", "7")]
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"prompt": p, "answer": a, "source": "mine"}) + "\n" for p, a in rows))
    return file


def written(tmp_path):
    return [json.loads(line) for line in (tmp_path / "hints.jsonl").read_text().splitlines()]


def ask(data, url, **more):
    settings = {"output": data.parent / "hints.jsonl", "model": "m", "retries": 0, "progress": "silent"} | more
    return write_hints(data, endpoint=url, **settings)


def test_the_output_is_the_dataset_with_ladders_and_reads_back_as_tasks(data, tmp_path):
    with endpoint(lambda *_: GOOD) as (url, seen):
        found = ask(data, url, items=2)
    assert (found.written, found.failed, found.hints, found.asked_again) == (3, 0, 15, 0)
    assert [request["path"] for request in seen] == ["/v1/chat/completions"] * 3
    assert {request["model"] for request in seen} == {"m"}
    file = str(tmp_path / "hints.jsonl")
    source = Dataset(path=file, heldout_path=file, columns=Columns(hints="hints")).build("heldout", 0)
    tasks = {task.answer: task for task in (source[i] for i in range(len(source)))}
    assert set(tasks) == {"42", "15", "7"}
    ladder = tasks["42"].columns["hints"]
    assert [hint["tier"] for hint in ladder] == ["knowledge"] * 2 + ["planning"] + ["solution"] * 2
    assert tasks["42"].columns["source"] == "mine"


def test_the_model_sees_problem_answer_and_solution():
    task = Task("t", ({"role": "user", "content": "17 + 25"},), "42", {"demonstration": "7 + 5 = 12, ..."})
    (message,) = request_for(task, LadderSettings(tiers=("planning",), items=3))
    for part in ("17 + 25", "42", "7 + 5 = 12", "- planning:", "below 3", '{"planning": ["...", "..."]}'):
        assert part in message["content"]
    assert "knowledge" not in message["content"]


def test_a_timeout_nonsense_and_a_500_are_counted_and_the_run_goes_on(data):
    def answer(problem, nth, body):
        return {"17 + 25": GOOD, "8 + 7": 500, "3 + 4": "I would rather not."}[problem]

    with endpoint(answer) as (url, _):
        found = ask(data, url)
    assert found.written == 1
    assert dict(found.failures) == {"HTTP 500": 1, "an answer that is no ladder of hints": 1}
    assert [failed["id"].rpartition("/")[2] for failed in sorted(found.failed_tasks, key=str)] == ["1", "2"]


@pytest.mark.parametrize("slow", [20.0, DRIP], ids=["silent", "drip by drip"])
def test_a_server_that_does_not_come_to_an_end_is_given_up_after_the_timeout(data, slow):
    with endpoint(lambda problem, *_: slow if problem == "8 + 7" else GOOD) as (url, _):
        found = ask(data, url, timeout_seconds=3)  # long enough for the others on a busy machine
    assert (found.written, dict(found.failures)) == (2, {"no answer within 3 s": 1})


def test_a_dead_port_fails_every_task_and_names_it(data, tmp_path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = held.getsockname()[1]
        found = ask(data, f"http://127.0.0.1:{port}/v1", retries=1)
    assert (found.written, dict(found.failures)) == (0, {f"no connection to 127.0.0.1:{port}": 3})
    assert found.asked_again == 3
    assert not (tmp_path / "hints.jsonl").exists()


def test_what_may_pass_is_asked_again_and_what_will_not_is_not(data):
    def answer(problem, nth, body):
        if problem == "3 + 4":
            return 401
        return GOOD if nth == 2 else (503 if nth == 0 else "{not json")

    with endpoint(answer) as (url, seen):
        found = ask(data, url, retries=2)
    assert (found.written, dict(found.failures)) == (2, {"HTTP 401": 1})
    asked = [request["problem"] for request in seen]
    assert [asked.count(problem) for problem in ("17 + 25", "8 + 7", "3 + 4")] == [3, 3, 1]
    assert found.asked_again == 4
    # Another seed each time, or a server that obeys it would say the same nonsense again.
    assert len({request["seed"] for request in seen if request["problem"] == "8 + 7"}) == 3


def test_hints_that_say_the_answer_are_dropped_and_asked_for_again(data, tmp_path):
    leaking = GOOD | {"solution": ["first 10", "it is 42"]}

    def answer(problem, nth, body):
        if problem == "17 + 25":
            return leaking if nth == 0 else GOOD | {"planning": ["so 42"]}
        return {"solution": ["the answer is 15"]} if problem == "8 + 7" else GOOD

    with endpoint(answer) as (url, _):
        found = ask(data, url, retries=1)
    # 17 + 25: the first answer loses one hint and has all tiers still: taken. 8 + 7: nothing is left, twice.
    assert dict(found.failures) == {"every hint says the answer": 1}
    assert found.leaks_dropped == 3
    assert found.asked_again == 1
    rows = {row["prompt"]: row for row in written(tmp_path)}
    assert [hint["text"] for hint in rows["17 + 25"]["hints"] if hint["tier"] == "solution"] == ["first 10"]


def test_a_tier_that_leaks_whole_is_asked_for_again_and_the_fuller_ladder_taken(data, tmp_path):
    half = {"knowledge": ["carry"], "planning": ["it is 42"], "solution": ["it is 42"]}
    most = {"knowledge": ["carry"], "planning": ["add"], "solution": ["it is 42"]}
    with endpoint(lambda problem, nth, _: [half, most, half][nth] if problem == "17 + 25" else GOOD) as (url, seen):
        found = ask(data, url, retries=2)
    assert found.written == 3
    rows = {row["prompt"]: row for row in written(tmp_path)}
    assert [hint["tier"] for hint in rows["17 + 25"]["hints"]] == ["knowledge", "planning"]
    assert [request["problem"] for request in seen].count("17 + 25") == 3


def test_hints_that_say_the_answer_only_together_lose_the_later_one():
    # A guide shows what a tier said so far, joined by line ends. What a source says of its own hints is not asked.
    task = Task("t", ({"role": "user", "content": "?"},), "it\nis red").with_note(HintsLeak(False))
    ladder = [Hint("solution", "it"), Hint("solution", "is red")]
    assert without_leaks(task, ladder) == ladder[:1]


def test_the_same_call_goes_on_where_it_was_stopped(data, tmp_path):
    with endpoint(lambda problem, *_: GOOD if problem == "17 + 25" else 500) as (url, _):
        ask(data, url)
    output = tmp_path / "hints.jsonl"
    first = output.read_text()
    with output.open("a") as file:
        file.write('{"hints_of": "abc", "prompt": "8 +')  # killed in the middle of a line
    with endpoint(lambda *_: GOOD) as (url, seen):
        found = ask(data, url)
    assert (found.written, found.already_there, found.tasks) == (2, 1, 3)
    assert "17 + 25" not in [request["problem"] for request in seen]
    assert output.read_text().startswith(first)
    assert len(written(tmp_path)) == 3
    with endpoint(lambda *_: GOOD) as (url, seen):
        assert ask(data, url).already_there == 3
    assert seen == []


def test_at_most_so_many_requests_are_under_way(tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"1 + {n}", "answer": f"a{n}"}) + "\n" for n in range(12)))
    under_way, most, lock = 0, 0, threading.Lock()

    def answer(*_):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.02)
        with lock:
            under_way -= 1
        return GOOD

    with endpoint(answer) as (url, _):
        assert ask(file, url, concurrency=3).written == 12
    assert most == 3


def test_the_key_comes_from_its_own_variable_and_no_other_secret_is_sent(data, monkeypatch):
    # The client library would send the user's Hugging Face token where it gets no key.
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk_secret")
    with endpoint(lambda *_: GOOD) as (url, seen):
        ask(data, url, n=1)
        monkeypatch.setenv("LYCEUM_API_KEY", "mine")
        ask(data, url, n=2)
    assert [request["key"] for request in seen] == ["Bearer none", "Bearer mine"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"<think>maybe {{...}}, {json.dumps({'planning': ['no']})}</think>\n```json\n{json.dumps(GOOD, indent=1)}\n```",
        json.dumps({"note": {"x": 1}} | GOOD),
        json.dumps({tier: [*texts, 5, "  "] for tier, texts in GOOD.items()}),
    ],
)
def test_the_last_ladder_of_an_answer_is_read_whatever_stands_around_it(text):
    ladder = read_ladder(text, LadderSettings())
    assert {tier: [hint.text for hint in ladder if hint.tier == tier] for tier in GOOD} == GOOD


@pytest.mark.parametrize("text", ["", "{", "[]", '{"knowledge": "one text"}', '{"hints": ["a"]}', "{" * 5000, "5"])
def test_anything_else_is_nonsense(text):
    with pytest.raises(Nonsense):
        read_ladder(text, LadderSettings())


def test_half_of_a_surrogate_pair_is_no_hint():
    # The row could be written and never be read again.
    ladder = read_ladder('{"planning": ["a\\ud800", "b"]}', LadderSettings())
    assert [hint.text for hint in ladder] == ["b"]


def test_no_more_hints_than_asked_for_are_taken():
    ladder = read_ladder(json.dumps({"planning": ["a", "b", "c"]}), LadderSettings(items=2))
    assert [hint.text for hint in ladder] == ["a", "b"]


# A local model ------------------------------------------------------------------------------------------------------


def local_model(tmp_path, context=2048):
    module, tokenizer = build_scratch(width=16, layers=1, heads=2, feed_forward=32, context=context)
    save_policy(Policy(module, tokenizer), tmp_path / "model")
    return str(tmp_path / "model")


def test_a_local_model_writes_through_the_embedded_engine(data, tmp_path, monkeypatch):
    model = local_model(tmp_path)
    decoded = []

    def ladder(self, tokens):
        decoded.append(len(tokens))
        return json.dumps(GOOD)

    monkeypatch.setattr(Policy, "decode", ladder)  # untrained, it writes letters
    output = tmp_path / "hints.jsonl"
    keys = ["tasks.limit=2", "engine.max_sequences=1"]
    found = write_hints(data, keys, model=model, output=output, max_tokens=5, progress="silent")
    assert (found.written, found.hints) == (2, 10)
    assert all(0 < tokens <= 5 for tokens in decoded)


def test_a_request_that_a_local_model_cannot_hold_is_counted_and_not_repeated(tmp_path):
    model = local_model(tmp_path, context=64)
    found = write_hints("chain", model=model, output=tmp_path / "h.jsonl", n=2, retries=3, progress="silent")
    assert dict(found.failures) == {"a prompt longer than the model's context of 64": 2}
    assert found.asked_again == 0


def test_a_local_models_nonsense_is_asked_for_again_with_another_seed(tmp_path, monkeypatch):
    written, decode = [], Policy.decode
    monkeypatch.setattr(Policy, "decode", lambda self, tokens: written.append(list(tokens)) or decode(self, tokens))
    asked = {"model": local_model(tmp_path), "output": tmp_path / "h.jsonl", "n": 1, "max_tokens": 6, "retries": 2}
    for _ in range(2):
        found = write_hints("chain", **asked, progress="silent")
        assert (found.failed, found.asked_again) == (1, 2)
    assert written[:3] == written[3:], "the same draws each time"
    assert len({tuple(tokens) for tokens in written}) == 3


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_says_what_came_of_it(data, tmp_path, capsys):
    with endpoint(lambda problem, *_: 500 if problem == "3 + 4" else GOOD) as (url, _):
        asked = ["hints", str(data), "--endpoint", url, "--model", "m", "--output", str(tmp_path / "hints.jsonl")]
        assert main([*asked, "--retries", "0", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["written"], found["failed"], found["failures"]) == (2, 1, {"HTTP 500": 1})
        # Now only the task that fails is left: nothing succeeds.
        assert main([*asked, "--retries", "0"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "tasks without hints: 1" in said
    assert "1 x HTTP 500" in said
    assert "2 already had theirs" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "h.jsonl"], "model: got none"),
        (["--output", "h.jsonl", "--endpoint", "http://localhost:1/v1"], "the name that the endpoint knows it by"),
        (["--output", "h.jsonl", "--endpoint", "localhost:8000", "--model", "m"], "endpoint: got 'localhost:8000'"),
        (["--output", "h.txt", "--model", "base"], "allowed: a file named .jsonl"),
        (["--output", "data.jsonl", "--model", "base"], "which tasks.path is read from"),
        (["--output", "other.jsonl", "--model", "base"], "line 1 of 'other.jsonl' was not written by lyceum hints"),
        (["--output", "h.jsonl", "--model", "base", "--tiers", "knowlege"], "tiers: got knowlege; allowed: some of"),
        (["--output", "h.jsonl", "--model", "base", "--items", "0"], "items: got 0"),
        (["--output", "deep.jsonl", "--model", "base"], "line 1 of 'deep.jsonl' was not written by lyceum hints"),
        (["--output", "h.jsonl", "--model", "base", "--retries", "9" * 20], "allowed: 0 to 100"),
        (["--output", "h.jsonl", "--model", "base", "--timeout-seconds", "nan"], "timeout_seconds: got nan"),
        (["--output", "h.jsonl", "--model", "base", "--concurrency", "0"], "concurrency: got 0"),
        (["--output", "h.jsonl", "--model", "base", "--timeout-seconds", "0"], "timeout_seconds: got 0"),
        (["--output", "h.jsonl", "--model", "base", "--temperature", "-1"], "temperature"),
        (["--output", "h.jsonl", "--model", "base", "--n", "0"], "n: got 0"),
        (["--output", "h.jsonl", "--model", "nowhere/at/all"], "model.path: got 'nowhere/at/all'"),
        (["--output", "h.jsonl", "--model", "base", "steps=3"], "steps: unknown key here; allowed: tasks.KEY"),
        (["--output", "h.jsonl", "--model", "base", "tasks.columns.prompt=question"], "has no column 'question'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(words, said, data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "deep.jsonl").write_text("[" * 10_000 + "\n")
    assert main(["hints", "data.jsonl", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "h.jsonl").exists()


def test_generated_tasks_need_a_number(tmp_path):
    with pytest.raises(RecipeError, match="tasks kind 'chain' generates any number of tasks"):
        write_hints("chain", model="base", output=tmp_path / "h.jsonl")
