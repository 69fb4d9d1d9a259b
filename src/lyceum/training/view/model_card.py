"""The README.md beside a trained model: what it is, how it was trained, how well it does, and how to do it again.

Only what the recipe names and the run measured: paths as the user gave them, no command line, no time, so that a
resumed run writes the same card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lyceum.models.load import BASE, BASE_STORIES, UNTRAINED
from lyceum.reward.function_registry import is_passed_in
from lyceum.utils.documents import write_yaml
from lyceum.utils.html import share, shares
from lyceum.utils.paths import local_path

OWN = {
    BASE: "the small base model that comes with lyceum",
    BASE_STORIES: "the small model of word problems that comes with lyceum",
    **dict.fromkeys(UNTRAINED, "a small model with random weights"),
}
SETTINGS_OF_THIS_MACHINE = ("name", "label", "output", "threads", "track", "digests", "trust_code")
"""Keys of a run that are no part of how the model was made. ``trust_code`` and ``model.trust_remote_code`` only a
command line may give."""
VERSIONS = ("lyceum", "python", "torch", "transformers", "machine", "gpu")


def model_card(recipe: Mapping[str, Any], summary: Mapping[str, Any], *, names_code: bool = False) -> str:
    """The card as Markdown, with the hub's metadata at its top.

    Args:
        recipe: every key, as in recipe.yaml.
        summary: as in summary.json.
        names_code: whether the recipe names code of the user's own, which a command has to trust.
    """
    model = dict(recipe["model"])
    base, name = model["path"], recipe["label"] or recipe["name"]
    trusts = {
        "trust_code": recipe["trust_code"] or names_code,
        "model.trust_remote_code": model.pop("trust_remote_code"),
    }
    trust = "".join(f" {key}=true" for key, given in trusts.items() if given)
    passed_in = _passed_in(recipe["reward"])
    trust += "".join(f" {key}=FILE.py:FUNCTION" for key in passed_in)
    kept = {key: value for key, value in recipe.items() if key not in SETTINGS_OF_THIS_MACHINE} | {"model": model}
    before, after = (shares(summary.get(when) or {}) for when in ("before", "after"))
    of, evaluated = summary.get("after") or {}, recipe["evaluate"]["tasks"] or recipe["tasks"]
    figures = [
        "| held-out | before | after |",
        "|---|---|---|",
        *(f"| {row} | {share(before.get(row))} | {share(after.get(row))} |" for row in {**before, **after}),
        "",
        f"Proportions with 95 % intervals over {of.get('tasks', '?')} tasks of {_code(_said(evaluated))}, "
        f"{of.get('samples', '?')} samples each.",
    ]
    cost = [
        f"{summary[key]:,} {said}"
        for key, said in (("steps", "steps"), ("tokens_sampled", "tokens sampled"), ("tokens_trained", "trained"))
        if summary.get(key) is not None
    ]
    idle = ["", "**Its rewards had no learning signal: nothing was learnt.**"] if summary.get("learnt") is False else []
    files = [stage["data"]["path"] for stage in recipe["stages"] if (stage.get("data") or {}).get("kind") == "file"]
    if files:
        kept.pop("summary", None)  # of what the method samples itself
    trained = [
        f"- tasks: {_code(_said(recipe['tasks']))}",
        f"- reward: {_code(', '.join(_said(part) for part in recipe['reward']))}",
    ]
    versions = summary.get("versions") or {}
    lines = [
        *("---", write_yaml(_metadata(base, recipe)).rstrip(), "---", "", f"# {_code(name)}", ""),
        *(f"Trained with lyceum's recipe {_code(name)}{_paper(recipe)}.", ""),
        f"- base model: {OWN.get(base) or _code(base)}",
        *[f"- data: {_code(path)}" for path in files],
        *(trained if len(files) < len(recipe["stages"]) else []),
        f"- seed: {_code(recipe['seed'])}",
        *([f"- cost: {', '.join(cost)}"] if cost else []),
        *("", "## Held-out accuracy", "", *(figures if before or after else ["Not evaluated."]), *idle, ""),
        *("## Again", "", *_told_of(passed_in), "Save the block below as `recipe.yaml`, then:", ""),
        *("```bash", f"lyceum train recipe.yaml{trust} --name again", "```", ""),
        *("Versions: " + ", ".join(f"{key} {versions[key]}" for key in VERSIONS if versions.get(key)) + ".", ""),
        *_fenced(write_yaml(kept)),
    ]
    return "\n".join(lines) + "\n"


def _metadata(base: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if _on_hub(base):
        found["base_model"] = base
    tasks = recipe["tasks"]
    if tasks.get("kind") == "dataset" and _on_hub(str(tasks.get("path", ""))):
        found["datasets"] = [tasks["path"]]
    return found | {"tags": ["lyceum", "reinforcement-learning"]}


def _passed_in(reward: Sequence[Any]) -> dict[str, str]:
    """Key -> name of each function that was passed in from Python, which the recipe cannot hold."""
    named = {f"reward.{n}.function": part.get("function") for n, part in enumerate(reward) if isinstance(part, Mapping)}
    specs = {key: spec[0] if isinstance(spec, list) and len(spec) == 1 else spec for key, spec in named.items()}
    return {key: spec.rpartition(":")[2] for key, spec in specs.items() if isinstance(spec, str) and is_passed_in(spec)}


def _told_of(passed_in: Mapping[str, str]) -> list[str]:
    if not passed_in:
        return []
    names = ", ".join(map(_code, passed_in.values()))
    return [f"The reward was passed in from Python ({names}), and is not in the recipe: put it in a file.", ""]


def _on_hub(path: str) -> bool:
    """Whether a path is ``owner/name`` of the hub: neither a folder here, nor one that could have been."""
    is_name = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) is not None and not path.endswith((".jsonl", ".gguf"))
    return is_name and not local_path(path).exists()


def _paper(recipe: Mapping[str, Any]) -> str:
    return "".join(f", {_code(said)}" for said in (recipe["title"], recipe["paper"]) if said)


def _said(settings: Any) -> str:
    """A component's kind, and what it reads."""
    if not isinstance(settings, Mapping):
        return str(settings)
    return " ".join(str(settings[key]) for key in ("kind", "path", "subset", "name", "function") if settings.get(key))


def _code(value: Any) -> str:
    """A text as code, on one line: Markdown and HTML in it mean nothing."""
    text = " ".join(str(value).split())
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _fenced(text: str) -> list[str]:
    fence = "`" * (1 + max(2, *map(len, ["", *re.findall("`+", text)])))
    return [f"{fence}yaml", text.rstrip(), fence]
