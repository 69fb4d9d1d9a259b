"""Random combinations of components: each runs two steps, or is refused before a model loads with a line that says why.

python tests/recipe/compositions.py --number 2000 --seed 7
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from lyceum.core.component import kinds
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.models.scratch import build_scratch
from lyceum.recipe.schema import parse
from lyceum.reward.base import each
from lyceum.training.train import train
from lyceum.utils.errors import NothingGraded, RecipeError
from lyceum.utils.garbage_collection import only_new

SHORT = {"max_completion_tokens": 8}
STEP = {"tokens": 3}
FLAT = {"kind": "flat", "samples": 4, "sampling": SHORT}
SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "curriculum": {
        "subset": {"only": [1, 2]},
        "knapsack": {"samples": 4, "most": 6},
        "alp-gmm": {"fit_every": 4, "least_components": 1, "most_components": 2},
        "good-prefixes": {"pool": 4},
        "prompt-value": {"pool": 2, "lr": 1e-3},
        "hard-filter": {"pool": 4, "least": 2},
        "resorted": {"window": 4, "tests": 2},
        "posterior": {"samples": 4, "pool": 4, "picks": 4, "tests": 2},
        "angles": {"pool": 8},
        "phases": {"lengths": [5, 9], "every_steps": 1},
        "recap": {"by": "level", "window": 2},
    },
    "guidance": {
        "scaffold": {"exempt": 0.0},
        "ghpo": {"cold_start_steps": 0},
        "multi-guidance": {"answer": {"after": "#"}},
        "rethink": {"decompose": ":{level}", "refine": "!="},
        "rubric-scaffold": {"order": "listed"},
        "critique": {"refinement": SHORT},
        "guide-model": {"sampling": SHORT},
        "seele": {"rounds": 2},
        "search-where-hard": {"direct": FLAT, "tests": 2, "easy": "train"},
    },
    "rollout": {
        "flat": {"samples": 4},
        "critical-tokens": {"samples": 4, "regenerated": 1, "least_characters": 1},
        "segments": {"samples": 4, "segment_tokens": 3},
        "look-ahead": {"samples": 4, "look_aheads": [2, 3]},
        "turns": {"samples": 4, "environment": {"kind": "calculator", "notation": {"end": "1"}}},
        "branching-turns": {"samples": 4, "environment": {"kind": "calculator", "notation": {"end": "1"}}},
        "dialogue-tree": {"samples": 4, "environment": {"kind": "calculator", "notation": {"end": "1"}}},
        "a-star": {"trajectories": 4, "step": STEP, "max_nodes": 40, "until_right": False},
        "mcts": {"trajectories": 4, "width": 2, "depth": 6, "step": STEP},
        "beam": {"beams": 2, "width": 2, "trajectories": 4, "step": STEP},
        "value-filter": {"samples": 4, "step": STEP},
        "best-first": {"trajectories": 4, "step": STEP, "max_nodes": 40, "until_right": False},
        "value-mcts": {"iterations": 3, "width": 2, "step": STEP},
        "next-steps": {"trajectories": 2, "width": 2, "step": STEP},
        "rethink-mcts": {"iterations": 3, "width": 2, "step": STEP, "by": "test-composed"},
    },
    "credit": {
        "by-part": {"parts": {"outcome": 1, "test-composed": 0.5}},
        "salt": {"steps": "tokens", "step_tokens": 3},
        "gigpo": {"steps": "tokens", "step_tokens": 3},
        "empg": {"steps": "tokens", "step_tokens": 3},
        "action-gae": {"steps": "tokens", "step_tokens": 3},
    },
    "reward": {
        "overlong": {"max_tokens": 8, "buffer_tokens": 4},
        "drm": {"coherence": {"scorer": {"kind": "step-consistency", "tasks": 50, "updates": 5}}, "unanswered": 0},
        "consistency-bonus": {"extract": {"after": "="}},
        "curiosity": {"step": STEP},
        "distance": {"lenient": {"hard_from": 2, "end": 0.1, "steps": 1}},
        "information-gain": {"baseline": "policy", "close": "#"},
    },
}
"""Settings without which a component cannot run, or two steps of four tasks are too few for it to do anything."""

PARTS = (
    "steps",
    "token-budget",
    "dynamic-length",
    "length-range",
    "overlong",
    "repetition",
    "consistency-bonus",
    "drm",
    "text-overlap",
    "distance",
    "unlikeliness",
    "self-reference",
    "information-gain",
    "curiosity",
)
"""Parts of a reward that need no function, program or model of the user's."""

CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"kind": "regex", "pattern": "[ -~]{1,6}"},
    {"kind": "regex", "pattern": "([0-9]+=)+[0-9]"},
    {"kind": "json-schema", "json_schema": {"type": "array", "items": {"enum": [1, 22]}, "maxItems": 2}},
)
"""Two that a short completion may complete, and one that it seldom does."""


class Digits(RewardSettings):
    """Right where the first letter is a digit, and worth the share of digits: an untrained model's samples differ."""

    kind: Literal["test-composed"] = "test-composed"

    def build(self, source: TaskSource) -> Grader:
        return each(self.grade)

    def grade(self, task: Task, leaf: Node) -> Grade:
        share = sum(map(str.isdigit, leaf.completion)) / (1 + len(leaf.completion))
        return Grade(share, leaf.completion[:1].isdigit(), answered=True)


MOST_REFUSED = 0.15

ROLES = (
    *("abstractions", "critique", "global-plan", "guide-model", "pioneer-observer", "proposer-solver"),
    "proposer-solver-judge",
)
"""Guides whose roles go through a task together: alone, with plain samples."""

APART = (
    *("self-play", "search-planner", "search-self-play", "target-size", "turn-advantage", "papo"),
    *("failed-tasks", "state-values", "clocked-workers", "duration-aware"),
    *("planner-grounder", "evolving-goals"),
    *("hierarchical-search", "questioner-responder-verifier"),
)
"""What needs tasks of its own, pictures, a tool, a critic of turns, or programs whose time is known."""

KNOWN_OBJECTIVES = kinds("objective")
OBJECTIVES = [
    kind for kind, of in KNOWN_OBJECTIVES.items() if "demonstrations" not in of.requires and kind not in APART
]


def prepare(folder: Path) -> Path:
    """Make what the recipes read: a model so small that most of two steps is not its own, and a run with trees."""
    model, tokenizer = build_scratch(width=32, layers=2, heads=2, feed_forward=64)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    stage = {"kind": "online", "steps": 1, "tasks_per_step": 6, "rollout": FLAT}
    usual = {"model": str(folder / "model"), "tasks": "chain-teachers", "reward": "test-composed", "evaluate": {"n": 0}}
    train(parse(usual | {"stages": [stage], "trees_every": 1, "name": "earlier", "output": str(folder)}))
    return folder


@cache
def drawable(slot: str) -> list[str]:
    """Kinds of a slot that are drawn; looked for once, since thousands of recipes are."""
    return [kind for kind in kinds(slot) if not kind.startswith("test-") and kind not in APART]


def random_recipe(rng: Random, folder: Path = Path("prepared")) -> dict[str, Any]:
    """A recipe of one online stage that reads from a folder that was prepared; its components are drawn independently
    of each other."""
    model = str(folder / "model")

    def drawn(slot: str, among: list[str] | None = None) -> dict[str, Any]:
        kind = rng.choice(among or drawable(slot))
        earlier = {"path": str(folder / "earlier"), "low": 0, "high": 1} if kind == "middling" else {}
        return {"kind": kind, **earlier, **SMALL.get(slot, {}).get(kind, {})}

    sampling: dict[str, Any] = dict(SHORT)
    if rng.random() < 0.2:
        sampling["constraint"] = rng.choice(CONSTRAINTS)
    rollout = drawn("rollout") | {"sampling": sampling}
    if rollout["kind"] == "flat" and rng.random() < 0.15:
        rollout["tokens_per_step"] = 3
    stage: dict[str, Any] = {
        "kind": "online",
        "steps": 2,
        "tasks_per_step": 4,
        "rollout": rollout,
        "curriculum": drawn("curriculum"),
        "guidance": [drawn("guidance") for _ in range(rng.choice((0, 0, 1, 1, 2)))],
        "credit": drawn("credit"),
        "objective": drawn("objective", OBJECTIVES),
        "learner": {
            "kind": "local",
            "lr": 1e-3,
            "updates_per_step": rng.choice((1, 1, 2)),
            "epochs": rng.choice((1, 1, 2)),
            "layout": rng.choice(("auto", "tree", "rows")),
            "micro_batch_tokens": rng.choice((64, 4096)),
            "autocast": rng.choice(("none", "none", "none", "bfloat16")),
            "gradient_checkpointing": rng.random() < 0.1,
            "schedule": rng.choice(("constant", "cosine")),
        },
        "engine": {
            "kind": "embedded",
            "max_sequences": rng.choice((1, 3, 64)),
            "keep_tokens": rng.choice((0, 20, 4096)),
            "prefill_tokens": rng.choice((16, 4096)),
            "share_prompt_tokens": rng.choice((1, 48)),
        },
        "collect": {"keep": rng.choice(("all", "all", "with-gradient")), "max_waves": 2},
    }
    if stage["collect"]["keep"] != "all" and rng.random() < 0.5:
        stage["collect"]["oversample"] = {"by": rng.choice(("least", "average"))}
    # What one component needs of another is given, as the error line of either would say.
    if stage["objective"]["kind"] == "direct-advantage":
        stage["credit"] = {"kind": "value-gain"}
    if stage["credit"]["kind"] == "value-gain":
        rollout = stage["rollout"] = {"kind": "next-steps", **SMALL["rollout"]["next-steps"], "sampling": sampling}
    if rollout["kind"] in ("beam", "value-mcts", "next-steps", "value-filter"):
        stage["value"] = "likelihood"
    if stage["curriculum"]["kind"] in ("knapsack", "posterior") and rollout["kind"] == "next-steps":
        stage["curriculum"]["samples"] = 2
    if stage["curriculum"]["kind"] == "good-prefixes" and rollout["kind"] in (
        "turns",
        "branching-turns",
        "dialogue-tree",
    ):
        stage["curriculum"] = {"kind": "uniform"}
    if stage["curriculum"]["kind"] == "good-prefixes":
        stage["guidance"] = [{"kind": "prefix"}, *stage["guidance"]]
    objective, credit = stage["objective"], stage["credit"]
    roles = [guide for guide in stage["guidance"] if guide["kind"] in ROLES and credit["kind"] != "value-gain"]
    if credit["kind"] == "value-gain":  # its rollout is no role's
        stage["guidance"] = [guide for guide in stage["guidance"] if guide["kind"] not in ROLES]
    for guide in stage["guidance"]:
        if guide["kind"] == "search-where-hard":
            guide["direct"] = FLAT | {"sampling": sampling}
    if roles:
        stage |= {"guidance": roles[:1], "curriculum": {"kind": "uniform"}, "collect": {"keep": "all"}}
        if rollout["kind"] not in ("flat", "segments") or "tokens_per_step" in rollout:
            stage["rollout"] = {"kind": "flat", **SMALL["rollout"].get("flat", {}), "sampling": sampling}
            stage.pop("value", None)
    elif credit["kind"] in ("task-relative", "role-baseline"):
        credit["kind"] = "group"
    if objective["kind"] == "hapo":
        credit = stage["credit"] = {"kind": "hapo"}
    settings = KNOWN_OBJECTIVES[objective["kind"]].model_fields
    if credit["kind"] in ("gae", "egae", "action-gae"):
        if "value_coefficient" in settings:
            objective["value_coefficient"] = 0.5
        elif rng.random() < 0.7:  # the others are refused
            credit = stage["credit"] = {"kind": "group"}
    if objective["kind"] == "gkd":
        stage["teacher"] = {"path": model}
    if "kl" in settings and settings["kl"].annotation is not float and rng.random() < 0.2:
        objective["kl"] = {"coefficient": 0.05, "against": rng.choice(("reference", "average"))}
    parts = [{"kind": "test-composed"}]
    if rng.random() < 0.3:
        kind = rng.choice(PARTS)
        parts.append({"kind": kind, **SMALL["reward"].get(kind, {})})
        if kind == "token-budget":
            stage["curriculum"] = {"kind": "shrinking-budget", "start_tokens": 8, "least_tokens": 2}
    if parts[-1]["kind"] in ("steps", "token-budget") and (roles or stage["curriculum"]["kind"] == "middling"):
        parts.pop()
    averaged = objective.get("kl", {}).get("against") == "average"
    if averaged or parts[-1]["kind"] == "consistency-bonus":
        stage["average"] = {"decay": rng.choice((0.0, 0.5, 0.995)), "every": rng.choice((1, 2))}
        stage["reward"] = parts  # an evaluation of the recipe's own would have no average to read
    if rng.random() < 0.15 and not roles:
        stage["replay"] = {
            "kind": "own",
            "share": rng.choice((0.5, 1.0, 2.0)),
            "instead": rng.random() < 0.3,
            "ratio": "step" if objective["kind"] == "mix-policy" else rng.choice(("behaviour", "step")),
            "priority": rng.choice(("uniform", "newest", "advantage")),
            "once": rng.random() < 0.3,
        }
    if credit["kind"] == "self-imitation":
        stage.setdefault("replay", {"kind": "own", "ratio": "step"})
    taught = any(guide["kind"] == "multi-guidance" for guide in stage["guidance"])
    chains = {"kind": "chain-teachers" if taught else "chain", "levels": [1, 2, 3]}
    tasks: dict[str, Any] = {"kind": "countdown"} if parts[-1]["kind"] == "steps" else chains
    lora = rng.random() < 0.15 and {"rank": 2, "target_modules": ["q_proj", "v_proj"]}
    return {
        "model": {"path": model, "lora": lora},
        "tasks": tasks | {"size": 120},
        "reward": parts[:1] if "reward" in stage else parts,
        "evaluate": {"n": 0},
        "track": [],
        "digests": rng.random() < 0.3,
        "trees_every": rng.choice((0, 0, 1)),
        "checkpoint_every": rng.choice((0, 1)),
        "stages": [stage],
    }


def tried(seed: int, prepared: Path, output: Path) -> str:
    """``ran``, or the first line of why the recipe of this seed was refused.

    Raises:
        Exception: what a crash raises.
    """
    recipe = random_recipe(Random(seed), prepared) | {"name": f"run-{seed}", "output": str(output), "seed": seed}
    try:
        train(parse(recipe))
    except NothingGraded:
        return "ran"
    except RecipeError as error:
        if (output / f"run-{seed}").exists():
            raise AssertionError(f"refused after the model was loaded: {error}") from error
        return error.lines[0]
    return "ran"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    crashed: list[tuple[int, str]] = []
    with tempfile.TemporaryDirectory() as folder, only_new():
        prepared = prepare(Path(folder))
        for seed in range(given.seed, given.seed + given.number):
            try:
                outcomes[tried(seed, prepared, Path(folder))] += 1
            except Exception as error:
                crashed.append((seed, f"{type(error).__name__}: {error}"))
            shutil.rmtree(Path(folder, f"run-{seed}"), ignore_errors=True)
    for line, times in outcomes.most_common():
        print(f"{times:6} {line[:150]}")
    for seed, why in crashed:
        print(f"seed {seed} crashed: {why[:300]}")
    refused = given.number - outcomes["ran"] - len(crashed)
    print(f"{outcomes['ran']} ran, {refused} were refused ({refused / given.number:.1%}), {len(crashed)} crashed")
    return 1 if crashed or refused > MOST_REFUSED * given.number else 0


if __name__ == "__main__":
    sys.exit(main())
