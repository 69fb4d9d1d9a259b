"""A step of a run again: another credit or objective on the trees that it recorded, beside the run's own.

Both see the same forest under the same weights, those that the step began with, so that every difference is theirs. The
forest is one batch, whatever ``learner.updates_per_step`` is: what a step's first look at its trees asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxtyping import Bool, Float

from lyceum.core.forest import Forest
from lyceum.core.group import flatten
from lyceum.core.types import Credited, Gradients, Learner, Origin, State
from lyceum.models.load import ModelSettings, check_model, load_policy
from lyceum.models.policy import Policy
from lyceum.recipe.schema import Overrides, Recipe, apply_overrides, parse, read_override, trusting_own
from lyceum.run import checkpoint
from lyceum.run.files import check_output, input_paths
from lyceum.run.folder import differences, recover
from lyceum.run.reader import is_run, read_recipe, read_run_folder
from lyceum.training.stages.method import Method
from lyceum.training.stages.models import learner_of, models_of
from lyceum.training.stages.online import Online
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.errors import RecipeError
from lyceum.utils.html import table
from lyceum.utils.lazy_imports import Tensor, torch

if TYPE_CHECKING:
    import pyarrow as pa

    from lyceum.run.trees import Heading, StepTrees

_STEP = re.compile(r"step-([0-9]{6,18})\.parquet")
_MAY_DIFFER = re.compile(r"stages\.[0-9]+\.(credit|objective)(\..*)?|model\.(device|trust_remote_code)|trust_code")


@dataclass(frozen=True)
class Replay:
    """A replay that can be run: made by :meth:`of`, which refuses what cannot work before any model is loaded.

    Attributes:
        run: the run's folder.
        recorded: the step's trees.
        checkpoint: has the weights that the step began with; None where it began with the initial model.
        model: the initial model.
        own, other: the step's stage, as the run had it and with the given keys.
        changed: key of the stage -> (value in the run, value given).
        recorded_loss: the step's loss in the run's metrics, the mean of its updates; None where they lack it.
    """

    run: Path
    recorded: StepTrees
    checkpoint: Path | None
    model: ModelSettings
    own: Online
    other: Online
    changed: dict[str, tuple[Any, Any]]
    recorded_loss: float | None

    @classmethod
    def of(cls, run: Path, step: int, overrides: Overrides) -> Replay:
        """Check everything that can be checked before the model is loaded.

        Raises:
            RecipeError: no run, a step that cannot be replayed, an unknown key, a value or a combination that is not
                allowed, a key beside credit and objective.
        """
        recover(run)
        if not is_run(run):
            raise RecipeError(f"run: {run} is not a run's folder; allowed: one that lyceum train wrote")
        recipe, other = _recipes(run, overrides)
        recorded, began = find_recorded(run, step, recipe)
        of = recorded.heading
        stage, changed_stage = cast(Online, recipe.stages[of.stage]), cast(Online, other.stages[of.stage])
        if "unfinished" in stage.rollout.offers and (
            stage.credit.reads_unfinished or changed_stage.credit.reads_unfinished
        ):
            given = next(each.credit.kind for each in (stage, changed_stage) if each.credit.reads_unfinished)
            raise RecipeError(
                f"credit.kind: got {given!r}, which also trains completions that the step left unfinished, and the run "
                "writes none of them; allowed: a run without rollout.tokens_per_step, or one with another credit"
            )
        if of.first_step and "reference_logprob" in Method.of(changed_stage).needs - Method.of(stage).needs:
            raise RecipeError(
                f"objective: got one that needs the policy as stage {of.stage + 1} began as a reference, which the run "
                "has not kept, as its own objective needs none; allowed: one without (objective.kl.coefficient=0)"
            )
        check_model(other.model)
        lines = read_run_folder(run).metrics
        loss = next((line.get("loss") for line in lines if line["step"] == of.step), None)
        changed = differences(stage.model_dump(mode="json"), changed_stage.model_dump(mode="json"))
        return cls(run, recorded, began, other.model, stage, changed_stage, changed, loss)

    def __call__(self) -> Replayed:
        """Compute both sides.

        Raises:
            CheckpointError: the checkpoint is torn or changed.
            Diverged: log-probabilities of the step's weights are nan.
        """
        policy, learner = self.begin()
        forest = self.forest(policy)
        own, other = (self.side(learner, forest, stage) for stage in (self.own, self.other))
        return Replayed(self, policy, forest, own, other)

    @cached_property
    def state(self) -> State | None:
        """The stage's state before the step; None where the step was its first."""
        return None if self.checkpoint is None else checkpoint.load(self.checkpoint)["state"]["of_stage"]

    def begin(self) -> tuple[Policy, Learner]:
        """The policy and a learner with the weights that the step began with."""
        policy = load_policy(self.model)
        needs = Method.of(self.own).needs | Method.of(self.other).needs
        learner = learner_of(self.own, models_of(self.own.roles, policy), needs, self.own.steps, self.run / "stages")
        if self.state is not None:
            learner.load_weights(self.state["learner"])
        return policy, learner

    def forest(self, policy: Policy) -> Forest:
        sampling = self.own.sampling
        return flatten(
            self.recorded.trained,
            decode=policy.decode,
            temperature=sampling.usual_temperature or 1.0,
            constraint=None if sampling.constraint is None else sampling.constraint.build(policy),
        )

    def side(self, learner: Learner, forest: Forest, stage: Online) -> ReplayedSide:
        method = Method.of(stage)
        # What an objective or a credit has learnt belongs to its kind.
        if self.state is not None and stage.objective.kind == self.own.objective.kind:
            method.objective.load_state_dict(self.state["objective"])
        if self.state is not None and stage.credit.kind == self.own.credit.kind:
            method.credit.load_state_dict(self.state["credit"])
        forest, credited = method.prepared(learner, forest)
        trained = forest.trainable(forest.rows(), method.objective.origins)
        return ReplayedSide(stage, credited, trained, learner.gradients(forest, credited, method.objective))


@dataclass(frozen=True)
class ReplayedSide:
    """What one credit and one objective make of the forest.

    Attributes:
        trained: tokens that the objective trains.
    """

    stage: Online
    credited: Credited
    trained: Bool[Tensor, "R L"]
    gradients: Gradients

    @cached_property
    def norm(self) -> float:
        """Of the gradient of the policy's weights, in loss units."""
        return _dot(self.gradients.weights, self.gradients.weights) ** 0.5

    def to_json(self) -> dict[str, Any]:
        coefficient = self.gradients.coefficient[self.trained].double()
        return {
            "credit": self.stage.credit.model_dump(mode="json"),
            "objective": self.stage.objective.model_dump(mode="json"),
            "loss": self.gradients.loss,
            "gradient_norm": self.norm,
            "tokens": len(coefficient),
            "coefficient_mean_abs": _mean(coefficient.abs()),
            "share_not_zero": _mean((coefficient != 0).double()),
            "metrics": self.gradients.metrics,
        }


@dataclass(frozen=True)
class Replayed:
    """Both sides of a replay; rows are the graded trajectories, as in the forest."""

    replay: Replay
    policy: Policy
    forest: Forest
    own: ReplayedSide
    other: ReplayedSide

    @cached_property
    def compared(self) -> Bool[Tensor, "R L"]:
        """Tokens that either side trains."""
        return self.own.trained | self.other.trained

    @property
    def coefficients(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Those of the compared tokens: the run's own, the other's."""
        own, other = (side.gradients.coefficient[self.compared].double() for side in (self.own, self.other))
        return own, other

    @property
    def sign_flips(self) -> float | None:
        """Share of the compared tokens that one side makes likelier and the other less likely."""
        own, other = self.coefficients
        return _mean((own * other < 0).double())

    @property
    def one_sided(self) -> float | None:
        """Share of the compared tokens that one side alone moves."""
        own, other = self.coefficients
        return _mean(((own == 0) != (other == 0)).double())

    @property
    def correlation(self) -> float | None:
        """Pearson's, of the two coefficients over tokens; None where one side's are all equal."""
        own, other = (x - x.mean() for x in self.coefficients)
        spread = float((own.square().sum() * other.square().sum()).sqrt())
        return float((own * other).sum()) / spread if spread else None

    @property
    def cosine(self) -> float | None:
        """Of the gradients of all trained weights of the policy; None where one of them is 0."""
        own, other = self.own.gradients.weights, self.other.gradients.weights
        size = (_dot(own, own) * _dot(other, other)) ** 0.5  # one root: exactly 1 for equal gradients
        return _dot(own, other) / size if size else None

    def __repr__(self) -> str:
        return f"Replayed({self._title})"

    def _repr_html_(self) -> str:
        named = ("loss", "gradient_norm", "tokens", "coefficient_mean_abs", "share_not_zero")
        kinds = [(slot, *(getattr(side.stage, slot).kind for side in self._sides)) for slot in ("credit", "objective")]
        found = [side.to_json() for side in self._sides]
        rows = [(name.replace("_", " "), *(_shown(side[name]) for side in found)) for name in named]
        return table(("", "the run's own", "replayed"), [*kinds, *rows], title=self._title)

    @property
    def _sides(self) -> tuple[ReplayedSide, ReplayedSide]:
        return self.own, self.other

    @property
    def _title(self) -> str:
        named = ("sign_flips", "one_sided", "correlation", "cosine")
        found = ", ".join(f"{name.replace('_', ' ')} {_shown(getattr(self, name))}" for name in named)
        return f"step {self.replay.recorded.heading.step} of {self.replay.run}: {found}"

    def to_json(self) -> dict[str, Any]:
        replay = self.replay
        of = replay.recorded.heading
        return {
            "run": str(replay.run),
            "step": of.step,
            "stage": of.stage,
            "weights": "initial model" if replay.checkpoint is None else str(replay.checkpoint),
            "changed": replay.changed,
            "groups": len(self.forest.group.unique()),
            "trajectories": len(self.forest.episode_rows),
            "tokens": int(self.compared.sum()),
            "sign_flips": self.sign_flips,
            "one_sided": self.one_sided,
            "correlation": self.correlation,
            "cosine": self.cosine,
            "recorded_loss": replay.recorded_loss,
            "own": self.own.to_json(),
            "other": self.other.to_json(),
        }

    def tokens(self) -> pa.Table:
        """A row for each compared token: where it is, and what each side makes of it."""
        import pyarrow as pa

        forest, (row, position) = self.forest, self.compared.nonzero(as_tuple=True)
        at = forest.rows().index[row, position]
        token, tree = forest.token[at].tolist(), forest.tree[at].tolist()
        text = {each: self.policy.decode([each]) for each in set(token)}
        sides = {"own": self.own, "other": self.other}
        numbers = {
            "tree": forest.tree[at],
            "row": row,
            "position": position,
            "token": forest.token[at],
            "behaviour_logprob": forest.behaviour_logprob[at],
            **{f"advantage_{name}": side.credited.advantage[row, position] for name, side in sides.items()},
            **{f"coefficient_{name}": side.gradients.coefficient[row, position] for name, side in sides.items()},
        }
        trees = self.replay.recorded.trees
        task = [trees[i].task.id for i in tree]
        texts = {
            "task_id": [_text(each) for each in task],
            "text": [_text(text[each]) for each in token],
            "origin": [Origin(each).name.lower() for each in forest.origin[at].tolist()],
        }
        return pa.table({name: column.numpy() for name, column in numbers.items()} | texts)

    def write(self, file: Path) -> None:
        """Write :meth:`tokens` as parquet.

        Raises:
            OSError: it could not be written.
        """
        import pyarrow.parquet as parquet

        content = BytesIO()
        parquet.write_table(self.tokens(), content, compression="zstd")
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, content.getvalue())


def replay(run: Path, step: int, overrides: Overrides = (), *, output: Path | None = None) -> Replayed:
    """Compare another credit or objective with a run's own, on a step that it recorded.

    Args:
        overrides: keys of the stage's credit and objective; none compares the run's own with itself.
        output: parquet file to write every token's coefficients to.
    """
    planned = Replay.of(run, step, overrides)
    if output is not None:
        read = input_paths(planned.model, "model") | input_paths(planned.other)
        file = check_output("output", output, inputs={"run": run, **read})
        if file.exists() and file.stat().st_size and not _is_replays(file):
            raise RecipeError(
                f"output: {file} is there and was not written by lyceum replay; allowed: a new file, or a replay's"
            )
    found = planned()
    if output is not None:
        found.write(output)
    return found


def _is_replays(file: Path) -> bool:
    """Whether a file is one of :meth:`Replayed.write`."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        return {"coefficient_own", "coefficient_other"} <= set(parquet.read_schema(file).names)
    except (pyarrow.ArrowException, OSError):
        return False


def _recipes(run: Path, overrides: Overrides) -> tuple[Recipe, Recipe]:
    """The run's recipe, and the same with the given keys.

    Raises:
        RecipeError: a mistake in them, or a key that a replay cannot change.
    """
    # Code was trusted for another command: a model's or a component's has to be trusted again, a reward's is not run.
    distrust = [("trust_code", False), ("model.trust_remote_code", False)]
    raw, given = read_recipe(run), read_recipe(run)
    for each in (raw, given):
        apply_overrides(each, distrust)
    with trusting_own(overrides):
        try:
            recipe = parse(raw)
        except RecipeError as error:
            raise RecipeError(f"{run / 'recipe.yaml'}: {line}" for line in error.lines) from error
        apply_overrides(given, [read_override(each) for each in overrides])
        other = parse(given)
    refused = [
        f"{key}: got {value!r}, but the step is recorded; allowed: keys of credit and objective, model.device, "
        "model.trust_remote_code, trust_code"
        for key, (_, value) in differences(recipe.resolved(), other.resolved()).items()
        if not _MAY_DIFFER.fullmatch(key)
    ]
    if refused:
        raise RecipeError(refused)
    return recipe, other


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return sum(float(torch.dot(x.flatten().double(), y.flatten().double())) for x, y in zip(a, b, strict=True))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _mean(values: Float[Tensor, " n"]) -> float | None:
    return float(values.mean()) if len(values) else None


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def find_recorded(run: Path, step: int, recipe: Recipe) -> tuple[StepTrees, Path | None]:
    """A step's trees, and the checkpoint it began from; None where that is the initial model.

    Raises:
        RecipeError: there are no trees of the step, or no weights that it began with.
    """
    from lyceum.run.trees import FOLDER, read_heading, read_trees

    files = {file: match for file in (run / FOLDER).glob("step-*.parquet") if (match := _STEP.fullmatch(file.name))}
    of_step = {int(match[1]): file for file, match in sorted(files.items())}
    if not of_step:
        raise RecipeError(f"run: {run} has no {FOLDER}; allowed: a run that was trained with trees_every=STEPS")
    saved = {checkpoint.step_of(path): path for path in reversed(checkpoint.found(run / "checkpoints"))}
    why = "whose trees the run did not write (trees_every)"
    if step in of_step and (why := _why_not(read_heading(of_step[step]), saved, recipe)) is None:
        recorded = read_trees(of_step[step])
        if any(tree.graded for tree in recorded.trees):
            return recorded, saved.get(step - 1)
        why = "which had no graded trajectory to train on"
    begins = [file for other, file in of_step.items() if other - 1 in (0, *saved) and other != step]
    can = [of.step for of in map(read_heading, begins) if _why_not(of, saved, recipe) is None]
    allowed = ", ".join(map(str, can)) or "none of this run: a step that begins from a checkpoint, with its trees"
    raise RecipeError(f"step: got {step}, {why}; allowed: {allowed}")


def _why_not(of: Heading, saved: Mapping[int, Path], recipe: Recipe) -> str | None:
    """Why a step cannot be replayed; None where it can."""
    stage = recipe.stages[of.stage] if of.stage < len(recipe.stages) else None
    if not isinstance(stage, Online):
        return "which fine-tuned on what its search found, without credit"
    if stage.replay is not None and stage.replay.warms_up(of.step - of.first_step - 1):
        return "which trained nothing: what it sampled was only stored (replay.warm_up)"
    if of.step == 1:
        return None  # from the initial model
    if of.step - 1 not in saved:
        return f"but the run has no checkpoint of step {of.step - 1}, whose weights it began with (checkpoint_every)"
    return None
