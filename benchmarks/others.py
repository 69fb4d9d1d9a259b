"""Reward functions of TRL, verl and open-r1, as they are, on rows as GSM8K has them: through lyceum, and by hand.

    python benchmarks/others.py --library trl --out results.json   # or verl, or open_r1; pip install it first

verl's functions also need ray, tensordict, codetiming, hydra-core, pylatexenc and mathruler. A minute for each library.
Each function is named as on the command line (``reward=trl.rewards:accuracy_reward``), and beside it called as its own
library calls it: both must give the same numbers.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import common

sys.path.insert(0, str(common.HERE.parent / "tests"))
sys.path.insert(0, str(common.HERE.parent / "tests" / "reward"))
from leaves import grades, leaf

from lyceum.core.tree import Node
from lyceum.core.types import Task
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import allow_code

ROWS = (
    ("Tom has 48 nails and buys half as many. How many has he?", "48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72", "72"),
    (
        "A desk costs $1,200 and a chair a tenth. Both?",
        "1200/10 = <<1200/10=120>>120\nSo <<1200+120=1320>>1320",
        "1,320",
    ),
    ("Half of a dozen eggs break. How many are left?", "12*1/2 = <<12*1/2=6>>6", "6"),
)
"""Question, steps and answer; the column ``answer`` has steps and ``#### ANSWER``."""

COMPLETIONS = (
    "<think>\nFirst, I add.\nStep 1: so be it.\n</think>\n<answer>\n\\boxed{{{answer}}}\n</answer>",
    "It is {answer}.\n#### {answer}",
    "The answer is $\\boxed{{{answer}}}$",
    "Answer: {answer}",
    "#### 7",
    "\\boxed{{7}}",
    "so so so so so so so so so so so so",
    "",
)

CASES = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
"""Input and output of programs, as verl's code rewards take them."""
PROGRAMS = (
    "It adds.\n```python\na, b = map(int, input().split())\nprint(a + b)\n```",
    "```python\na, b = map(int, input().split())\nprint(3)\n```",  # one of two
    "```python\nprint(1 / 0)\n```",
    "```python\ndef (:\n```",
    "print(sum(map(int, input().split())))",
    "no program",
)

TRUTH = {"target": ["Jane Austen", "Austen"]}
"""Ground truth of a question to search for, as verl's rows have it: an object."""
SEARCHED = (
    "<think>Who?</think><answer> Jane Austen </answer>",
    "<answer>the austen.</answer>",
    "<answer>Goethe</answer><answer>Austen</answer>",
    "<answer>Goethe</answer>",
    "<answer>" * 11 + "Austen</answer>",
    "Austen",
    "",
)

SCORE = "verl.utils.reward_score"
ON_CODE = {"data_source": "apps"}
ON_SANDBOX = ON_CODE | {"sandbox_fusion_url": "http://127.0.0.1:PORT"}
ON_SEARCH = {"data_source": "searchR1_nq"}
FUNCTIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "trl": [
        ("trl.rewards:accuracy_reward", {}),
        ("trl.rewards:reasoning_accuracy_reward", {}),
        ("trl.rewards:think_format_reward", {}),
        ("trl.rewards:get_soft_overlong_punishment", {"max_completion_len": 40, "soft_punish_cache": 20}),
        ("trl.rewards:get_cosine_scaled_reward", {"max_len": 100}),
        ("trl.rewards:get_repetition_penalty_reward", {"ngram_size": 3, "max_penalty": -1.0}),
    ],
    "verl": [
        (f"{SCORE}:default_compute_score", {}),
        (f"{SCORE}.gsm8k:compute_score", {}),
        (f"{SCORE}.gsm8k:compute_score", {"method": "flexible"}),
        (f"{SCORE}.math_reward:compute_score", {}),
        (f"{SCORE}.math_dapo:compute_score", {}),
        (f"{SCORE}.math_verify:compute_score", {}),
        (f"{SCORE}.math_batch:compute_score_batched", {}),
        (f"{SCORE}:default_compute_score", {"data_source": "numina_cn_k12"}),  # prime_math, which gives a tuple itself
        (f"{SCORE}.geo3k:compute_score", {}),
        (f"{SCORE}:default_compute_score", ON_CODE),  # prime_code, which runs programs in processes of its own
        (f"{SCORE}:default_compute_score", ON_SANDBOX),  # sandbox_fusion, against a service that this file imitates
        (f"{SCORE}:default_compute_score", ON_SEARCH),
        (f"{SCORE}.search_r1_like_qa_em:compute_score", {"format_score": 0.1}),
        (f"{SCORE}.search_r1_like_qa_em:compute_score_subem", {}),
    ],
    "open_r1": [
        ("open_r1.rewards:accuracy_reward", {}),
        ("open_r1.rewards:format_reward", {}),
        ("open_r1.rewards:tag_count_reward", {}),
        ("open_r1.rewards:reasoning_steps_reward", {}),
        ("open_r1.rewards:len_reward", {}),
        ("open_r1.rewards:get_cosine_scaled_reward", {"max_len": 100}),
        ("open_r1.rewards:get_repetition_penalty_reward", {"ngram_size": 3, "max_penalty": -1.0}),
        ("open_r1.rewards:get_code_format_reward", {"language": "python"}),
        ("open_r1.rewards:get_soft_overlong_punishment", {"max_completion_len": 40, "soft_punish_cache": 20}),
    ],
}
DEFINITIONS = {
    "functions": "name and arguments as on the command line",
    "equal": "completions whose reward by lyceum is the number that the function gives when called by hand",
    "ungraded": "completions that are ungraded, where the function itself gives None",
    "different": "completions where the two differ: completion, by lyceum, by hand",
}


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--library", choices=list(FUNCTIONS), required=True)
    options = parser.parse_args()
    distribution = str(options.library).replace("_", "-")
    found: list[dict[str, Any]] = []
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = [written(*row) for row in ROWS]
        Path("gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for name, given in FUNCTIONS[options.library]:
            common.say(f"{name} {given or ''}")
            with sandbox_service(given) as arguments:
                found.append({"function": name, "arguments": given} | compared(name, arguments))
        os.chdir(here)
    common.write(
        {"definitions": DEFINITIONS, "machine": common.machine(distribution, "math-verify"), "functions": found},
        options.out,
    )


def written(question: str, steps: str, answer: str) -> dict[str, Any]:
    """A row as a run on GSM8K has it, with the columns that verl's preparation adds."""
    return {
        "prompt": [{"role": "user", "content": question}],
        "answer": f"{steps}\n#### {answer}",
        "data_source": "openai/gsm8k",
        "extra_info": {"split": "train", "index": 0},
    }


@contextmanager
def sandbox_service(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments with the address of a service that answers as SandboxFusion does, where they name one."""
    if "sandbox_fusion_url" not in given:
        yield given
        return

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ran = subprocess.run(
                [sys.executable, "-c", asked["code"]],
                input=asked.get("stdin"),
                capture_output=True,
                text=True,
                timeout=20,
            )
            said = {"status": "Finished", "return_code": ran.returncode, "execution_time": 0.1}
            run_result = said | {"stdout": ran.stdout, "stderr": ran.stderr}
            told = {
                "status": "Failed" if ran.returncode else "Success",
                "compile_result": None,
                "run_result": run_result,
            }
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is said of each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield given | {"sandbox_fusion_url": given["sandbox_fusion_url"].replace("PORT", str(server.server_port))}
    server.shutdown()


def files_for(name: str, given: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The file of rows that a function is tried on, and the completions."""
    if "search" in name or given == ON_SEARCH:
        model = {"ground_truth": TRUTH, "style": "rule"}
        row = {"prompt": [{"role": "user", "content": "Who wrote Emma?"}], "reward_model": model, "extra_info": None}
        Path("search.jsonl").write_text(json.dumps(row) + "\n")
        return "search.jsonl", SEARCHED
    if given.get("data_source") == "apps":
        row = {"prompt": "Add.", "answer": json.dumps(CASES), "extra_info": None}
        Path("code.jsonl").write_text(json.dumps(row) + "\n")
        return "code.jsonl", PROGRAMS
    return "gsm8k.jsonl", COMPLETIONS


def compared(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """How many rewards are equal, and those that are not."""
    file, completions = files_for(name, given)
    mark = ["tasks.answer_after=####"] if completions is COMPLETIONS else []
    keys = [f"tasks={file}", *mark, "tasks.heldout_share=0"]
    reward = {"function": name, "arguments": given} if given else name
    recipe = load_recipe("grpo", [*keys, ("reward", reward)])
    source: Any = recipe.tasks.build("train", 0)
    parts = [part.model_copy(update={"processes": 0}) for part in recipe.reward]  # another process imports all again
    module, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(module), attribute)
    told: dict[str, Any] = {"equal": 0, "ungraded": 0, "different": []}
    with allow_code():
        for number in range(len(source)):
            task = source[number]
            texts = (
                completions if completions is not COMPLETIONS else [c.format(answer=task.answer) for c in COMPLETIONS]
            )
            leaves = [leaf(text) for text in texts]
            graded = grades(parts, task, *leaves, source=source)
            for node, grade, right in zip(leaves, graded, by_hand(function, given, task, leaves), strict=True):
                if right is None and grade.outcome is None:
                    told["ungraded"] += 1
                elif right is not None and grade.outcome is not None and abs(grade.outcome - right) < 1e-9:
                    told["equal"] += 1
                else:
                    told["different"].append([node.completion, grade.outcome, grade.reason, right])
    return told


def by_hand(
    function: Callable[..., Any], given: dict[str, Any], task: Task, leaves: Sequence[Node]
) -> list[float | None]:
    """What the function says when it is called as its library does."""
    texts, parameters = [node.completion for node in leaves], inspect.signature(function).parameters
    if function.__module__.startswith("verl"):
        extra, source = task.columns["extra_info"], task.columns.get("data_source")
        truth = task.columns.get("reward_model", {"ground_truth": task.answer})["ground_truth"]
        if "solution_strs" in parameters:
            many = len(texts)
            return [number(one) for one in function([source] * many, texts, [truth] * many, [extra] * many, **given)]
        if "data_source" in parameters:
            named = {"data_source": source, "ground_truth": truth, "extra_info": extra} | given
            return [number(function(solution_str=text, **named)) for text in texts]
        return [number(function(text, truth, **given)) for text in texts]
    if not {"completions", "completion_ids"} & set(parameters):
        function = function(**given)
    columns = {name: [value] * len(texts) for name, value in {**task.columns, "solution": task.answer}.items()}
    prompts = [list(task.messages)] * len(texts)
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    ids = [list(node.completion_tokens) for node in leaves]
    result = function(prompts=prompts, completions=completions, completion_ids=ids, **columns)
    if inspect.isawaitable(result):
        result = asyncio.run(result)  # pyright: ignore[reportArgumentType]
    return [number(one) for one in result]


def number(result: Any) -> float | None:
    if isinstance(result, dict):
        result = result["score"]
    return None if result is None else float(result)


if __name__ == "__main__":
    main()
