"""What a small model has learnt of word problems: which tokens of right solutions it predicts, and pass@k by level.

    python benchmarks/stories.py --out stories.json [--model runs/stories-base/model] [--quick]

Before problems are a ground for comparing methods: operands and next names right in 95 %, pass@1 of 5 to 60 % on at
least four levels, pass@16 at least 30 points above; each beside the constant answer that is right most often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import torch
from common import arguments, machine, say, write
from transformers import AutoModelForCausalLM, AutoTokenizer

import lyceum
from lyceum.core.types import Split, Task
from lyceum.models.load import BASE_STORIES, SHIPPED, shipped_folder
from lyceum.tasks.stories import Stories
from lyceum.utils.numbers import to_json

ROLES = {
    "'s": "operand",
    " +": "operand",
    " -": "operand",
    " *": "operand",
    " =": "result",
    " has": "number",
    " by": "number",
    ".": "next name",
}
"""What a name or number is for, by the token before it; of a name after none of these, a name in a sentence."""


def predicted(module: Any, tokenizer: Any, task: Task) -> list[tuple[str, bool]]:
    """(role, whether it is the most likely token) of each name and number in a solution that is given to the model."""
    prompt, solution = (tokenizer.encode(text) for text in (task.messages[0]["content"], task.columns["demonstration"]))
    with torch.inference_mode():
        logits = module(torch.tensor([prompt + solution])).logits[0, len(prompt) - 1 : -1]
    pieces = tokenizer.convert_ids_to_tokens(solution)
    names = {f" {fact[0]}" for fact in task.columns["facts"]}
    found: list[tuple[str, bool]] = []
    for n, (piece, right) in enumerate(
        zip(pieces, (logits.argmax(-1) == torch.tensor(solution)).tolist(), strict=True)
    ):
        if n and (piece in names or piece.strip().isdigit()):
            found.append((ROLES.get(pieces[n - 1], "name in a sentence"), right))
    return found


def shares(module: Any, tokenizer: Any, tasks: list[Task]) -> dict[str, dict[str, Any]]:
    """Of each role, the share of tokens predicted, and their number."""
    of: dict[str, list[bool]] = defaultdict(list)
    for task in tasks:
        for role, right in predicted(module, tokenizer, task):
            of[role].append(right)
    return {role: {"right": sum(hits) / len(hits), "tokens": len(hits)} for role, hits in sorted(of.items())}


def best_constant(level: int, n: int, split: Split = "heldout") -> float:
    """Share of the problems that the same answer solves, the most frequent one."""
    source = Stories.model_validate({"levels": [level]}).build(split, 0)
    return Counter(source[index].answer for index in range(n)).most_common(1)[0][1] / n


def measure(model: str, levels: tuple[int, ...], n: int, samples: int) -> dict[str, Any]:
    folder = shipped_folder(model) if model in SHIPPED else model
    module = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    result: dict[str, Any] = {"levels": {}, "n": n, "samples": samples}
    for level in levels:
        source = Stories.model_validate({"levels": [level], "variety": 0}).build("heldout", 0)
        found = lyceum.evaluate(
            model,
            "stories",
            [f"tasks.levels=[{level}]"],
            k=[1, samples],
            n=n,
            progress="silent",
            max_completion_tokens=300,
        )
        result["levels"][level] = {
            "tokens": shares(module, tokenizer, [source[index] for index in range(n)]),
            "best_constant": best_constant(level, 2000),
            "pass_at": found["pass_at"],
            "greedy": found["greedy"],
        }
        say(f"level {level}: {to_json(result['levels'][level])}")
    return result


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--model", default=BASE_STORIES, help="the shipped one, or a folder")
    parser.add_argument("--levels", type=int, nargs="+", default=list(range(9)))
    parser.add_argument("--n", type=int, default=100, help="problems per level")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    n, samples = (2, 4) if given.quick else (given.n, 16)
    result = measure(given.model, tuple(given.levels), n, samples)
    write({"benchmark": "stories", "machine": machine()} | result, given.out)


if __name__ == "__main__":
    main()
