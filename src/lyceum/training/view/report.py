"""The report of a run folder, complete or not: one HTML file that needs no network.

Model output is untrusted: it enters the page as escaped text or as JSON that the page's script puts into text nodes,
and the page's policy allows no script but this package's.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lyceum.core.user_files import user_file
from lyceum.evaluation.intervals import Interval, difference_of_intervals
from lyceum.run.reader import RunFolder, read_examples, read_run_folder
from lyceum.training.view.rollouts import number, sample_rollouts
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.numbers import level_order, mean, plain
from lyceum.utils.terminal import printable

MAX_POINTS = 400
"""Maximum points per curve; longer runs show means of neighbouring steps."""
MAX_EXAMPLES = 60
MAX_EXAMPLE_CHARACTERS = 6_000
MAX_RECIPE_CHARACTERS = 100_000
_HERE = Path(__file__).parent
Series = tuple[list[int], list[float | None]]
"""A curve: positions on the horizontal axis, and values; None is a gap."""


def write_report(run_folder: Path | str) -> Path:
    """Write ``report.html`` into the run folder, from the files that the run has written so far.

    Raises:
        RecipeError: no such folder, or an invalid file in it.
    """
    path = Path(run_folder)
    # Atomic, so that a browser never loads a partial page.
    atomic_write(path / "report.html", render_report(path), durable=False)
    return path / "report.html"


def render_report(path: Path) -> str:
    """The page as text."""
    run = read_run_folder(path)
    notes = list(run.notes)
    with user_file("run", path / "rollouts", "allowed: the files as the run wrote them, or none"):
        rollouts, left_out = sample_rollouts(path / "rollouts")
    curves = _curves(run, notes)
    examples = _examples(path, notes)
    notes += left_out
    before, after = run.summary.get("before") or {}, run.summary.get("after") or {}
    # Through ``plain``: files of older versions may contain nan.
    data = plain({"curves": curves, "levels": _levels(before, after), "examples": examples, "rollouts": rollouts})
    script = (_HERE / "report.js").read_text("utf-8")
    return page_of(
        "report.html.jinja",
        data=data,
        script=Markup(script),
        script_hash=_hash(script),
        run=run,
        name=path.resolve().name,
        title=printable(str(run.summary.get("title") or "")),
        status=_status(run),
        after=after,
        headline=_headline(before, after),
        costs=_costs(run),
        recipe=_recipe(path / "recipe.yaml", notes),
        notes=notes,
    )


def page_of(template: str, **values: Any) -> str:
    """A page in the report's style. The package's own script and style are the only text that enters it unescaped."""
    style = (_HERE / "report.css").read_text("utf-8")
    return _templates().get_template(template).render(style=Markup(style), style_hash=_hash(style), **values)


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _status(run: RunFolder) -> str:
    steps = run.summary.get("steps") or (run.metrics[-1].get("step") if run.metrics else None)
    if run.finished:
        nothing = "; nothing was learnt" if run.summary.get("learnt") is False else ""
        return f"finished after {steps} steps{nothing}" if steps is not None else f"finished{nothing}"
    return f"in progress, step {steps}" if steps is not None else "no step recorded yet"


def _headline(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of (name, before, after, change); the first is the main one."""
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("One sample", ("overall",)),
        ("Greedy", ("greedy", "overall")),
    ]
    for key, name in (("pass_at", "pass"), ("maj_at", "maj")):
        ks = sorted({*(before.get(key) or {}), *(after.get(key) or {})} - {"1"}, key=level_order)
        rows += [(f"{name}@{k}", (key, k)) for k in ks[-2:]]
    found = []
    for label, keys in rows:
        was, now = _interval(before, keys), _interval(after, keys)
        if was is None and now is None:
            continue
        change = difference_of_intervals(was, now) if was is not None and now is not None else None
        found.append({"name": label, "before": was, "after": now, "change": change})
    return found


def _interval(of: Mapping[str, Any], keys: Sequence[str]) -> Interval | None:
    value: Any = of
    for key in keys:
        value = (value or {}).get(key)
    return Interval.from_json(value) if value else None


def _levels(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    was, now = before.get("by_level") or {}, after.get("by_level") or {}
    greedy = (after.get("greedy") or {}).get("by_level") or {}
    return [
        {"level": level, "before": was.get(level), "after": now.get(level), "greedy": greedy.get(level)}
        for level in sorted({*was, *now}, key=level_order)
    ]


def _costs(run: RunFolder) -> list[tuple[str, str]]:
    last = run.metrics[-1] if run.metrics else {}
    found = []
    for key, name in (("tokens_sampled", "tokens sampled"), ("tokens_trained", "tokens trained")):
        value = run.summary.get(key, last.get(key))
        if value is not None:
            found.append((name, f"{value:,}"))
    seconds = run.seconds if run.seconds is not None else last.get("time")
    if seconds is not None:
        found.append(("time", _duration(seconds)))
    phases = sorted((run.summary.get("seconds") or {}).items(), key=lambda item: -item[1])
    found += [(f"of it {phase}", _duration(value)) for phase, value in phases]
    for key, name in (("ungraded", "trajectories ungraded"), ("skipped_steps", "updates not finite")):
        if run.summary.get(key):
            found.append((name, f"{run.summary[key]:,}"))
    return found


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _curves(run: RunFolder, notes: list[str]) -> dict[str, Any]:
    """The metrics as curves of at most MAX_POINTS points; sparse metrics (held-out) are not averaged."""
    lines = run.metrics
    block = -(-len(lines) // MAX_POINTS) or 1
    if block > 1:
        notes.append(f"Curves show means of {block} neighbouring steps ({len(lines)} steps in all).")
    x = _places(lines, notes)
    keys = {key for line in lines for key, value in line.items() if isinstance(value, (int, float))}
    series = {key: _series(key, x, lines, block) for key in sorted(keys - {"step", "time"})}
    if x and (points := _with_ends(run, series.get("heldout/overall", ([], [])), x[-1])):
        series["heldout/overall"] = points
    return {"series": series, "stages": _stage_starts(x, lines), "block": block}


def _places(lines: Sequence[Mapping[str, Any]], notes: list[str]) -> list[int]:
    """Position of each line on the horizontal axis."""
    # Step numbers may restart with a new stage; line numbers do not.
    steps = [line.get("step", i) for i, line in enumerate(lines)]
    if all(a < b for a, b in itertools.pairwise(steps)):
        return steps
    notes.append("Step numbers in metrics.jsonl are not ascending: curves use line numbers instead.")
    return list(range(1, len(lines) + 1))


def _series(key: str, x: Sequence[int], lines: Sequence[Mapping[str, Any]], block: int) -> Series:
    """One metric's curve; one with more than MAX_POINTS points as the means of ``block`` neighbouring ones."""
    # A step whose value is not a number is a gap in the curve; a step without the metric is skipped.
    points = [(at, line[key]) for at, line in zip(x, lines, strict=True) if key in line]
    size = block if len(points) > MAX_POINTS else 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [at for *_, (at, _) in groups], [_mean_of_known([value for _, value in group]) for group in groups]


def _mean_of_known(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if isinstance(value, (int, float))]
    return number(mean(known), 5) if known else None


def _with_ends(run: RunFolder, heldout: Series, last: int) -> Series | None:
    """The held-out accuracy curve including the evaluations before and after the run; None without both."""
    evaluations = [run.summary.get(when) or {} for when in ("before", "after")]
    ends = [number(of["overall"]["mean"], 5) for of in evaluations if of.get("overall")]
    if len(ends) < 2:
        return None
    before, after = ends
    inner = [(at, value) for at, value in zip(*heldout, strict=True) if 0 < at < last]
    return [0, *(at for at, _ in inner), last], [before, *(value for _, value in inner), after]


def _stage_starts(x: Sequence[int], lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first position of each stage, and its name."""
    starts: list[dict[str, Any]] = []
    for at, line in zip(x, lines, strict=True):
        if line.get("stage") is not None and (not starts or starts[-1]["name"] != str(line["stage"])):
            starts.append({"at": at, "name": str(line["stage"])})
    return starts


def _examples(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    given = read_examples(path)
    if len(given) > MAX_EXAMPLES:
        notes.append(f"Before and after: the first {MAX_EXAMPLES} of {len(given)} examples are shown.")
    cut = 0

    def shortened(text: Any) -> str:
        nonlocal cut
        text = str(text)
        cut += len(text) > MAX_EXAMPLE_CHARACTERS
        return text[:MAX_EXAMPLE_CHARACTERS]

    def side(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return {"completion": shortened(given["completion"]), "correct": given.get("correct")} if given else None

    found = [
        {
            "task": str(example["task_id"]),
            "level": example.get("level"),
            "prompt": shortened(example["prompt"]),
            "answer": None if example.get("answer") is None else shortened(example["answer"]),
            "before": side(example.get("before")),
            "after": side(example.get("after")),
        }
        for example in given[:MAX_EXAMPLES]
    ]
    if cut:
        notes.append(f"{cut} texts of the examples are truncated at {MAX_EXAMPLE_CHARACTERS:,} characters.")
    return found


def _recipe(path: Path, notes: list[str]) -> str | None:
    if not path.exists():
        return None
    text = path.read_text("utf-8", errors="backslashreplace")
    if len(text) > MAX_RECIPE_CHARACTERS:
        notes.append(f"The recipe is truncated at {MAX_RECIPE_CHARACTERS:,} characters.")
    return text[:MAX_RECIPE_CHARACTERS]
