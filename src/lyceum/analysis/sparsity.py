"""Which weights training changed: the share that stays, by kind of layer, and the rank of what changes.

Read tensor by tensor, in pieces: neither model is in memory. The paper's share ("Reinforcement Learning Finetunes Small
Subnetworks in Large Language Models", arXiv:2505.11711, and its check_sparsity.py) is of weights rounded to bfloat16,
of which differences up to 1e-5 count as none; weights that were trained and stored in float32 are nearly all different
bit by bit, most by less than bfloat16 can show. So each share is given, under its own name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors import safe_open

from lyceum.analysis.measure import model_settings
from lyceum.core.user_files import user_file
from lyceum.models.load import SHIPPED, shipped_folder
from lyceum.models.weights import check_folder, weight_files
from lyceum.run.files import check_output
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.documents import is_json_with
from lyceum.utils.errors import RecipeError
from lyceum.utils.html import table
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import to_json
from lyceum.utils.paths import local_path
from lyceum.utils.progress import Progress
from lyceum.utils.terminal import quoted

ATOL = 1e-5
"""Difference of two weights that counts as none: the paper's."""
PIECE = 1 << 24
"""Elements of a tensor that are compared at once: 64 MiB in float32."""
WIDEST = 8192
"""Maximum smaller side of a matrix whose rank is computed: its Gram matrix takes 512 MiB."""
NAMED = 3


@dataclass(frozen=True)
class TensorUpdate:
    """One weight tensor before and after; counts are of elements.

    Attributes:
        equal: the same value as stored.
        close: a difference of at most the tolerance, as stored.
        close_bfloat16: the same of both rounded to bfloat16, as in the paper.
        rank: of the update between the rounded matrices; None where it is no matrix, or too wide, or was not asked for.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tuple[str, str]
    elements: int
    equal: int
    close: int
    close_bfloat16: int
    rank: int | None = None

    @property
    def kind(self) -> str:
        """The tensor's name with every number (of a layer or an expert) replaced by ``*``."""
        return ".".join("*" if part.isdigit() else part for part in self.name.split("."))


@dataclass(frozen=True)
class Share:
    """Tensors of a kind together: shares of their elements, and of their full rank (a mean over matrices)."""

    tensors: int
    elements: int
    equal: float
    close: float
    close_bfloat16: float
    rank: float | None


@dataclass(frozen=True)
class Overlap:
    """Weights that two trainings of one base changed, in bfloat16.

    Attributes:
        of_first, of_second: share of those that one changed which the other changed too.
        chance_first, chance_second: the same for as many weights chosen at random.
    """

    of_first: float
    of_second: float
    chance_first: float
    chance_second: float


@dataclass(frozen=True)
class Sparsity:
    """What changed between two models' weights.

    Attributes:
        atol: differences up to here count as none.
        only_in_base, only_in_model: names of tensors that the other lacks (tied weights are often stored once).
        not_compared: names of tensors of integers.
    """

    base: str
    model: str
    atol: float
    overall: Share
    kinds: dict[str, Share]
    tensors: list[TensorUpdate] = field(repr=False)
    only_in_base: list[str]
    only_in_model: list[str]
    not_compared: list[str]
    overlap: Overlap | None = None

    @property
    def stored(self) -> str:
        """The data types of the weights."""
        return ", ".join(dict.fromkeys(dtype for tensor in self.tensors for dtype in tensor.dtype))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"stored": self.stored}

    def __repr__(self) -> str:
        of = self.overall
        unchanged = f"{100 * of.close_bfloat16:.1f} % in bfloat16, {100 * of.close:.1f} % within {self.atol:g}"
        return f"Sparsity(weights of {self.model} that are unchanged from {self.base}: {unchanged})"

    def _repr_html_(self) -> str:
        rows = [
            (kind, str(of.tensors), *(f"{100 * each:.1f} %" for each in (of.close_bfloat16, of.close, of.equal)))
            for kind, of in {**self.kinds, "all": self.overall}.items()
        ]
        heads = ("tensors", "number", "in bfloat16", f"within {self.atol:g}", "equal")
        return table(heads, rows, title=f"weights of {self.model} that are unchanged from {self.base}")

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, to_json(self.to_json(), indent=1) + "\n")


@dataclass(frozen=True)
class Weights:
    """A model's safetensors files, by the names of their tensors."""

    given: str
    folder: Path
    places: Mapping[str, Path]

    @classmethod
    def of(cls, key: str, model: str) -> Weights:
        """
        Args:
            model: ``base``, a model's folder, or a run's.
        Raises:
            RecipeError: there is no such folder, or its files cannot be read.
        """
        path = model_settings(model, {}).path
        folder = shipped_folder(path) if path in SHIPPED else local_path(path)
        if not (folder / "config.json").is_file():
            raise RecipeError(
                f"{key}: got {quoted(model)}; allowed: {', '.join(SHIPPED)}, a model's folder with safetensors files, "
                "or a run's folder"
            )
        check_folder(key, path, folder)
        places: dict[str, Path] = {}
        for file in weight_files(key, folder):
            with safe_open(file, "pt") as opened:
                places |= dict.fromkeys(opened.keys(), file)
        return cls(model, folder, places)


@dataclass(frozen=True)
class SparsityPlan:
    """A comparison of weights that can be made: shapes are compared before any weight is read."""

    base: Weights
    model: Weights
    other: Weights | None
    atol: float
    rank: bool

    @classmethod
    def of(cls, base: str, model: str, other: str | None, *, atol: float, rank: bool) -> SparsityPlan:
        if not (0 <= atol < math.inf):
            raise RecipeError(f"atol: got {atol}; allowed: 0 or more")
        weights = [Weights.of(key, path) for key, path in (("base", base), ("model", model))]
        further = None if other is None else Weights.of("other", other)
        plan = cls(weights[0], weights[1], further, atol, rank)
        for key, trained in (("model", plan.model), ("other", plan.other)):
            if trained is not None:
                plan._check(key, trained)
        return plan

    def check_output(self, output: Path | str) -> Path:
        """Raise RecipeError for a file that cannot be written, is read here, or holds anything but a comparison."""
        models = {"base": self.base, "model": self.model} | ({} if self.other is None else {"other": self.other})
        file = check_output("output", local_path(str(output)), inputs={key: of.folder for key, of in models.items()})
        if file.exists() and file.stat().st_size and not is_json_with(file, {"overall", "kinds", "tensors", "atol"}):
            raise RecipeError(
                f"output: {file} is there and was not written by lyceum sparsity; allowed: a new file, or its own"
            )
        return file

    @property
    def names(self) -> list[str]:
        """Tensors that all models have."""
        trained = [self.model, *([self.other] if self.other is not None else [])]
        return [name for name in sorted(self.base.places) if all(name in each.places for each in trained)]

    def run(self) -> Sparsity:
        updates: list[TensorUpdate] = []
        skipped: list[str] = []
        masks = torch.zeros(3, dtype=torch.int64)  # changed by the first, by the second, by both
        with Progress(len(self.names), title="comparing", unit="tensor") as progress:
            for number, name in enumerate(self.names, 1):
                found = self._update(name, masks)
                if found is None:
                    skipped.append(name)
                else:
                    updates.append(found)
                progress.step(number)
        if not updates:
            raise RecipeError("model: no tensor of floating-point numbers in common; allowed: two states of one model")
        by_kind: dict[str, list[TensorUpdate]] = {}
        for update in updates:
            by_kind.setdefault(update.kind, []).append(update)
        return Sparsity(
            base=self.base.given,
            model=self.model.given,
            atol=self.atol,
            overall=_share(updates),
            kinds={kind: _share(of_kind) for kind, of_kind in by_kind.items()},
            tensors=updates,
            only_in_base=sorted(self.base.places.keys() - self.model.places.keys()),
            only_in_model=sorted(self.model.places.keys() - self.base.places.keys()),
            not_compared=skipped,
            overlap=None if self.other is None else _overlap(masks.tolist(), sum(each.elements for each in updates)),
        )

    def _check(self, key: str, trained: Weights) -> None:
        common = [name for name in self.base.places if name in trained.places]
        if not common:
            raise RecipeError(
                f"{key}: {trained.given} has no tensor of the same name as {self.base.given}; allowed: two states of "
                "one model"
            )
        with ExitStack() as opened:
            shapes = [_shapes(weights, common, opened) for weights in (self.base, trained)]
        if differing := [name for name in common if shapes[0][name] != shapes[1][name]]:
            name = differing[0]
            raise RecipeError(
                f"{key}: {len(differing)} of {len(common)} tensors have another shape than in {self.base.given} "
                f"({quoted(name)}: {list(shapes[1][name])}, there {list(shapes[0][name])}); allowed: two states of one "
                "model"
            )

    def _update(self, name: str, masks: Tensor) -> TensorUpdate | None:
        """A tensor's update; None for one of integers. The masks' counts are added to ``masks``."""
        models = [self.base, self.model, *([self.other] if self.other is not None else [])]
        key = "model"
        with ExitStack() as opened, user_file(key, name, "the file is damaged or incomplete: copy it again"):
            slices = [opened.enter_context(safe_open(each.places[name], "pt")).get_slice(name) for each in models]
            shape = tuple(slices[0].get_shape())
            counts, gram, dtypes = torch.zeros(3, dtype=torch.int64), None, ("", "")
            ranked = self.rank and len(shape) == 2 and 0 < min(shape) <= WIDEST
            for pieces in _pieces(slices, shape):
                if not all(piece.is_floating_point() for piece in pieces):
                    return None
                dtypes = (_dtype(pieces[0]), _dtype(pieces[1]))
                before, after = pieces[0].float(), pieces[1].float()
                rounded = [piece.float().bfloat16().float() for piece in pieces]
                update = rounded[1] - rounded[0]
                changed = ~(update.abs() <= self.atol)
                counts += torch.stack(
                    [(before == after).sum(), ((after - before).abs() <= self.atol).sum(), (~changed).sum()]
                )
                if len(pieces) == 3:
                    second = ~((rounded[2] - rounded[0]).abs() <= self.atol)
                    masks += torch.stack([changed.sum(), second.sum(), (changed & second).sum()])
                if ranked:
                    part = update.double() if shape[0] >= shape[1] else update.double().T
                    gram = part.T @ part if gram is None else gram.addmm_(part.T, part)
        equal, close, rounded_close = counts.tolist()
        rank = None if gram is None else rank_of_gram(gram, max(shape))
        return TensorUpdate(name, shape, dtypes, math.prod(shape), equal, close, rounded_close, rank)


def rank_of_gram(gram: Float[Tensor, "n n"], longest: int) -> int | None:
    """Rank of the float32 matrix A with Gram matrix A^T A, as ``torch.linalg.matrix_rank`` has it.

        rank = #{i : sigma_i > max(m, n) * eps * sigma_1},   sigma_i = sqrt(lambda_i(A^T A)),   eps of float32

    The Gram matrix is in float64, in which sigma_i / sigma_1 down to about 1e-8 is exact; the threshold is above it.

    Args:
        longest: max(m, n) of A.
    Returns:
        None where a number is not finite.
    """
    if not gram.isfinite().all():
        return None
    values = torch.linalg.eigvalsh(gram).clamp(min=0)
    largest = values.max()
    threshold = (longest * torch.finfo(torch.float32).eps) ** 2 * largest
    return int((values > threshold).sum()) if largest > 0 else 0


def _pieces(slices: Sequence[Any], shape: tuple[int, ...]) -> Iterator[list[Tensor]]:
    """The same piece of each tensor, of at most about ``PIECE`` elements: along the longer side of a matrix."""
    if len(shape) < 1 or not math.prod(shape):
        yield [each[...] for each in slices]
        return
    along = 1 if len(shape) == 2 and shape[1] > shape[0] else 0
    rows = max(1, PIECE // (math.prod(shape) // shape[along]))
    for start in range(0, shape[along], rows):
        piece = slice(start, start + rows)
        yield [each[:, piece] if along else each[piece] for each in slices]


def _shapes(weights: Weights, names: Sequence[str], opened: ExitStack) -> dict[str, tuple[int, ...]]:
    handles = {file: opened.enter_context(safe_open(file, "pt")) for file in set(weights.places.values())}
    return {name: tuple(handles[weights.places[name]].get_slice(name).get_shape()) for name in names}


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _share(updates: Sequence[TensorUpdate]) -> Share:
    elements = sum(update.elements for update in updates)
    ranks = [update.rank / min(update.shape) for update in updates if update.rank is not None]
    return Share(
        tensors=len(updates),
        elements=elements,
        equal=sum(update.equal for update in updates) / max(1, elements),
        close=sum(update.close for update in updates) / max(1, elements),
        close_bfloat16=sum(update.close_bfloat16 for update in updates) / max(1, elements),
        rank=sum(ranks) / len(ranks) if ranks else None,
    )


def _overlap(masks: Sequence[int], elements: int) -> Overlap | None:
    first, second, both = masks
    if not first or not second:
        return None
    return Overlap(both / first, both / second, second / elements, first / elements)
