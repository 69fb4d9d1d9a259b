"""Metrics as tables for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from lyceum.core.component import own_within
from lyceum.reward.base import named_code
from lyceum.utils.html import reward_is_accuracy
from lyceum.utils.numbers import share, shown
from lyceum.utils.progress import clock
from lyceum.utils.terminal import printable

if TYPE_CHECKING:
    from lyceum.analysis.doctor.result import CheckResult
    from lyceum.analysis.grading.grade import Graded
    from lyceum.analysis.sparsity import Share, Sparsity
    from lyceum.recipe.schema import Recipe

MAX_LINES = 24
"""Maximum lines shown of a completion."""
MANY_COLUMNS = 4
"""Maximum metrics side by side with their intervals, to fit 80 columns."""
MANY_CUT = 0.2
"""Share of truncated completions above which it is pointed out (no unit)."""


def held_out_table(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    """Held-out accuracy by level, before and after."""
    found = Table(title=f"held-out accuracy, % [95 % interval]; {after.get('tasks')} tasks", title_justify="left")
    found.add_column("level", no_wrap=True, min_width=5)
    for name in ("pass@1 before", "pass@1 after", "change", "greedy"):
        found.add_column(name, justify="right", no_wrap=True)
    rows = [(level, _of(before, level), _of(after, level)) for level in after.get("by_level") or {}]
    rows.append(("all", _of(before, None), _of(after, None)))
    for level, (sampled, greedy), (sampled_now, greedy_now) in rows:
        if level == "all" and len(rows) > 1:
            found.add_section()
        cells = (share(sampled), share(sampled_now), change(sampled, sampled_now))
        both = f"{_mean(greedy)} -> {_mean(greedy_now)}" if greedy or greedy_now else "-"
        found.add_row(str(level), *cells, both, style="bold" if level == "all" else "")
    return found


TOO_FEW = 10
"""Tasks below which an accuracy says nothing of a method."""


def few_lines(metrics: Mapping[str, Any]) -> list[str]:
    """A line where so few tasks were evaluated that one more or less is a large share of them."""
    tasks = metrics.get("tasks") or 0
    if not 0 < tasks < TOO_FEW:
        return []
    each = f"one task is {100 / tasks:.0f} points" if tasks > 1 else "one task is all of it"
    return [f"this accuracy says nothing of other tasks: {each}; more of them: tasks.heldout_share, evaluate.tasks"]


def reward_lines(*sittings: Mapping[str, Any]) -> list[str]:
    """Mean reward of one evaluation, or before and after, if it differs from accuracy."""
    last = sittings[-1]
    lines: list[str] = []
    if all(metrics.get("reward") for metrics in sittings) and not reward_is_accuracy(last):
        means = " -> ".join(amount(metrics["reward"]) for metrics in sittings)
        lines.append(f"mean reward [95 % interval]: {means}")
    if last.get("unjudged"):
        to_judge = f"; {last['to_judge']}" if last.get("to_judge") else ""
        lines.append(
            f"{last['unjudged']} samples are left out of the accuracy: rewards that are not all 0 or 1 do not say "
            f"which answers are correct{to_judge}"
        )
    return lines


def ungraded_lines(metrics: Mapping[str, Any]) -> list[str]:
    """How many samples of an evaluation could not be graded, and why."""
    if not metrics.get("ungraded"):
        return []
    reasons = metrics.get("reasons_ungraded") or {}
    return [
        f"{metrics['ungraded']} samples could not be graded and are left out:",
        *(f"  {times} x {reason}" for reason, times in reasons.items()),
    ]


def amount(interval: Mapping[str, float]) -> str:
    """``0.615 [0.57, 0.66]``."""
    return f"{shown(interval['mean'], 3)} [{shown(interval['low'], 2)}, {shown(interval['high'], 2)}]"


def change(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> Text:
    """Points gained; in colour only if the intervals do not overlap."""
    if not before or not after:
        return Text("-")
    points = Text(f"{100 * (after['mean'] - before['mean']):+.1f}")
    if after["low"] > before["high"]:
        points.stylize("green")
    elif after["high"] < before["low"]:
        points.stylize("red")
    return points


def _of(metrics: Mapping[str, Any], level: str | None) -> tuple[Any, Any]:
    greedy = metrics.get("greedy") or {}
    if level is None:
        return metrics.get("overall"), greedy.get("overall")
    return (metrics.get("by_level") or {}).get(level), (greedy.get("by_level") or {}).get(level)


def _mean(interval: Mapping[str, float] | None) -> str:
    return "-" if not interval else f"{100 * interval['mean']:.0f}"


def side_by_side(examples: Sequence[Mapping[str, Any]]) -> Table | None:
    """One task's completion before and after; one that was learnt, if any."""
    whole = [example for example in examples if example.get("before") and example.get("after")]
    if not whole:
        return None
    example = whole[0]
    found = Table(title=Text(_title(example)), title_justify="left", show_lines=False)
    for when in ("before", "after"):
        found.add_column(Text(f"{when}: {_verdict(example[when]['correct'])}"), ratio=1, overflow="fold")
    found.add_row(*(Text(_cut(example[when]["completion"])) for when in ("before", "after")))
    return found


def _title(example: Mapping[str, Any]) -> str:
    prompt = " ".join(printable(str(example["prompt"])).split())
    prompt = prompt if len(prompt) <= 200 else prompt[:197] + "..."
    level = "" if example.get("level") is None else f"level {example['level']}: "
    answer = "" if example.get("answer") is None else f"   (answer {_line(example['answer'])})"
    return f"{level}{prompt}{answer}"


def _line(text: Any) -> str:
    return " ".join(printable(str(text)).split())[:60]


def _cut(text: str) -> str:
    lines = printable(text).splitlines()
    return "\n".join([*lines[:MAX_LINES], *(["..."] if len(lines) > MAX_LINES else [])])


def _verdict(correct: bool | None) -> str:
    return {True: "correct", False: "incorrect", None: "no verdict"}[correct]


def cost_lines(summary: Mapping[str, Any], *, planned: Mapping[str, int]) -> list[str]:
    """Steps, tokens, time by phase, and problems during the run.

    Args:
        planned: steps of each stage in the recipe, by its name.
    """
    seconds = {phase: float(spent) for phase, spent in (summary.get("seconds") or {}).items()}
    phases = ", ".join(f"{phase} {spent:.1f}" for phase, spent in sorted(seconds.items(), key=lambda item: -item[1]))
    lines = [
        f"cost    {summary.get('steps')} steps, {count(summary.get('tokens_sampled'))} tokens sampled, "
        f"{count(summary.get('tokens_trained'))} trained, {clock(sum(seconds.values()))} ({phases} s)"
    ]
    for name, steps in planned.items():
        ended = (summary.get("ended") or {}).get(name)
        if ended is not None and ended["steps"] < steps:
            of = f"stage {name}" if len(planned) > 1 else "training"
            lines.append(f"note    {of} ended after {ended['steps']} of {steps} steps: {ended['why']}")
    if summary.get("skipped_steps"):
        lines.append(f"note    {summary['skipped_steps']} updates were skipped: loss or gradient not finite")
    cut = summary.get("truncated", 0) / max(1, summary.get("trajectories", 0))
    if cut > MANY_CUT:
        lines.append(
            f"note    {100 * cut:.0f} % of the completions were truncated; "
            "the limit is rollout.sampling.max_completion_tokens; in a dialogue also max_turns"
        )
    if summary.get("ungraded"):
        lines.append(f"note    {summary['ungraded']} completions could not be graded and were left out:")
        lines += [f"        {times} x {reason}" for reason, times in (summary.get("reasons_ungraded") or {}).items()]
    return lines


def count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}".replace(",", " ")


def closing_lines(run: Any, recipe: Recipe) -> list[Any]:
    """What ``lyceum train`` ends with: accuracy, an example, the cost, and next commands.

    Args:
        run: a finished one, as ``lyceum.train`` returns it.
    """
    summary = run.summary
    found: list[Any] = [""]
    if summary.get("before") and summary.get("after"):
        if summary["after"].get("overall"):
            found += [held_out_table(summary["before"], summary["after"]), *few_lines(summary["after"])]
        found += [*reward_lines(summary["before"], summary["after"]), *ungraded_lines(summary["after"])]
    chosen = side_by_side(run.examples)
    if chosen is not None:
        found += ["", chosen]
    found += ["", *cost_lines(summary, planned={stage.name: stage.steps for stage in recipe.stages}), ""]
    quoted, value = shlex.quote(str(run.path)), run.path / "value"
    sees = (run.model / "preprocessor_config.json").is_file()
    auto = "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM"
    read = [recipe.tasks, recipe.evaluate, recipe.reward, recipe.evaluation_rollout, recipe.evaluation_engine]
    trust = " trust_code=true" if named_code(recipe) or own_within(read) else ""
    return [
        *found,
        f"report  {run.report}",
        f"model   {run.model}   ({auto}.from_pretrained)",
        *([f"value   {value}   (lyceum search {quoted} --value {shlex.quote(str(value))})"] if value.is_dir() else []),
        f"next    lyceum eval {quoted} --k 1,8,64{trust}",
        f"        lyceum view {quoted} --open",
    ]


def accuracy_table(metrics: Mapping[str, Any]) -> Table:
    """One row per level: pass@1, greedy, and pass@k and maj@k for every k; intervals go below if there are many."""
    tight: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
    found = Table(title=_heading(metrics), title_justify="left", **tight)  # four metrics fit 80 columns
    found.add_column("level", no_wrap=True)
    found.add_column("tasks", justify="right", no_wrap=True)
    # pass@1 and maj@1 both equal avg@n: one column is enough.
    columns = [(kind, k) for kind in ("pass_at", "maj_at") for k in metrics[kind] if int(k) > 1]
    names = {"pass_at": "pass", "maj_at": "maj"}
    heads = ["pass@1", *(f"{names[kind]}@{k}" for kind, k in columns)]
    greedy = metrics.get("greedy") is not None
    apart = "\n" if len(heads) + greedy > MANY_COLUMNS else " "
    for head in [*heads, *(["greedy"] if greedy else [])]:
        found.add_column(head, justify="right", no_wrap=True)

    def row(level: str, of: Mapping[str, Any], at_zero: Any, style: str = "") -> None:
        shown = [of["overall"], *(of[kind].get(k) for kind, k in columns), *([at_zero] if greedy else [])]
        found.add_row(level, str(of["tasks"]), *(share(each).replace(" ", apart, 1) for each in shown), style=style)

    for level, of in metrics["levels"].items():
        row(level, of, of.get("greedy"))
    found.add_section()
    row("all", metrics, (metrics.get("greedy") or {}).get("overall"), "bold")
    return found


def _heading(metrics: Mapping[str, Any]) -> str:
    what = f"{metrics['model']} on {metrics['tasks_from']['kind']}"
    return f"{what}, % [95 % interval] of {metrics['samples']} samples per task"


REPLAYED = (
    ("loss", "loss"),
    ("gradient norm", "gradient_norm"),
    ("mean |coefficient|", "coefficient_mean_abs"),
    ("coefficients not 0", "share_not_zero"),
)
"""Title -> metric of a side of a replay."""


def _replay_table(found: Mapping[str, Any]) -> Table:
    """Both sides' metrics, and the settings in which they differ."""
    sides = Table()
    sides.add_column("")
    for name in ("the run's own", "replayed"):
        sides.add_column(name, justify="right", overflow="fold")
    for slot in ("credit", "objective"):
        sides.add_row(slot, *(found[side][slot]["kind"] for side in ("own", "other")))
    for key, values in found["changed"].items():
        if not key.endswith(".kind"):
            sides.add_row(key, *map(str, values))
    sides.add_section()
    for title, key in REPLAYED:
        show = _percent if key.startswith("share") else _number
        sides.add_row(title, *(show(found[side][key]) for side in ("own", "other")))
    return sides


def replay_lines(found: Mapping[str, Any]) -> list[Any]:
    """A replay: what it was of, both sides as a table, and how far they agree."""
    weights = found["weights"]
    weights = "the initial model" if weights == "initial model" else Path(weights).name
    lines: list[Any] = [
        f"step {found['step']} of {found['run']}, from the weights of {weights}: "
        f"{found['groups']} groups, {found['trajectories']} trajectories, {found['tokens']} trained tokens",
        _replay_table(found),
        f"sign flips: {_percent(found['sign_flips'])} of tokens; "
        f"moved by one of them alone: {_percent(found['one_sided'])}",
        f"correlation of the coefficients: {_number(found['correlation'])}; "
        f"cosine of the gradients: {_number(found['cosine'])}",
    ]
    if found["recorded_loss"] is not None:
        lines.append(f"loss that the run recorded, the mean of its updates: {_number(found['recorded_loss'])}")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def sparsity_table(found: Sparsity) -> Table:
    """Shares that training left unchanged, by kind of tensor; numbers of layers are ``*``. Fits into 80 columns."""
    title = f"weights of {found.model} that are unchanged from {found.base}, %"
    rows = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column("tensors", overflow="fold")
    for head in ("number", "elements", "in\nbfloat16", f"within\n{found.atol:g}", "equal", "rank,\n%"):
        rows.add_column(head, justify="right")
    for kind, unchanged in found.kinds.items():
        rows.add_row(kind.removeprefix("model.").removeprefix("layers.").removesuffix(".weight"), *_cells(unchanged))
    rows.add_section()
    rows.add_row("all", *_cells(found.overall), style="bold")
    return rows


def _cells(share: Share) -> list[str]:
    unchanged = [f"{100 * each:.1f}" for each in (share.close_bfloat16, share.close, share.equal)]
    return [
        str(share.tensors),
        f"{share.elements:,}".replace(",", " "),
        *unchanged,
        "-" if share.rank is None else f"{100 * share.rank:.0f}",
    ]


def sparsity_lines(found: Sparsity) -> list[str]:
    """What the columns of :func:`sparsity_table` mean, what was not compared, and how far two trainings overlap."""
    said = [
        f"in bfloat16: both rounded to bfloat16, differences up to {found.atol:g} count as none (arXiv:2505.11711). "
        "rank: of that update, of its full rank.",
        f"within {found.atol:g}, equal: as stored, in {found.stored}. Training in float32 changes nearly every weight "
        "in some bit, most by less than bfloat16 can show: do not compare these columns with shares in bfloat16.",
    ]
    for which, names in (("base", found.only_in_base), ("model", found.only_in_model), ("", found.not_compared)):
        if names:
            what = f"only in the {which}" if which else "of integers, not compared"
            said.append(f"{len(names)} tensors {what}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}")
    if found.overlap is not None:
        of = found.overlap
        said.append(
            f"overlap of the changed weights: {100 * of.of_first:.1f} % of the first's are the second's too (by chance "
            f"{100 * of.chance_first:.1f}), {100 * of.of_second:.1f} % the other way round (by chance "
            f"{100 * of.chance_second:.1f})"
        )
    return said


def graded_table(found: Graded) -> Table:
    """How many rows were graded, their accuracy, and the mean of each part."""
    summary = Table(show_header=False)
    summary.add_column("")
    summary.add_column("", justify="right")
    rows = [("rows", f"{found.rows}"), ("graded", f"{found.graded}"), ("ungraded", f"{found.ungraded}")]
    if found.judged:
        rows.append(("accuracy", f"{100 * found.correct / found.judged:.1f} %"))
    if found.mean is not None:
        rows.append(("mean score", f"{found.mean:.4g}"))
    rows += [(f"mean of {name}", f"{value:.4g}") for name, value in found.parts.items()]
    for name, value in rows:
        summary.add_row(Text(name), Text(value))
    return summary


STYLES = {"ok": "green", "fails": "bold red", "note": "dim", "skipped": "yellow"}


def checks_table(results: Sequence[CheckResult]) -> Table:
    """A line for each result; where it fails, what is allowed and the cure below it."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True, min_width=max(map(len, STYLES)))
    lines.add_column(overflow="fold")
    for result in results:
        lines.add_row(Text(result.status, STYLES[result.status]), Text(f"{result.check}: {result.found}"))
        if result.status == "fails":
            lines.add_row("", Text(f"allowed: {result.allowed}\ncure: {result.cure}"))
    return lines
