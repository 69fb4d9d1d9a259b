"""The learner in several processes, each with a share of every weight: torch's FSDP2 (``fully_shard``).

    lyceum train RECIPE learner.kind=fsdp --nproc 2         torchrun --nproc-per-node 8 -m lyceum train RECIPE ...

The loop lives in the first process: sampling, grading, credit, the objective, the run folder. The others wait for its
orders (:func:`serve`). Shared are the forwards and backwards, by rows; weights, gradients, the optimiser's moments and
frozen models, by dimension 0 of each tensor. Not shared are sampling (the first process has the policy whole, which the
engine serves) and the objective: the first process gathers the small outputs of all rows, takes the loss's gradient by
them as for a couple larger than a micro-batch, and each process sends its rows' part back through its own graph. So an
objective sees whole couples and whole micro-batches, and its metrics are those of one process.

Every process makes as many forwards and backwards: one with no rows in a round takes the shortest row, with gradient 0.
A checkpoint has every tensor whole, as ``local`` writes it: it resumes with any number of processes. (Files of
torch.distributed.checkpoint keep their metadata in a pickle, which is never read here.)
"""

from __future__ import annotations

import copy
import importlib
import itertools
import math
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Literal, get_args

from jaxtyping import Int

from lyceum.core.forest import Forest
from lyceum.core.types import Credited, FrozenName, Gradients, Kept, Objective, Origin, Reduction, StepPlan
from lyceum.learner._forward import RowOutputs, coupled_micro_batches, joined, micro_batches, still_needed
from lyceum.learner._link import Link, close, dismiss, link
from lyceum.learner._link import process_count as process_count
from lyceum.learner._link import process_number as process_number
from lyceum.learner._processes import end_with_starter, started
from lyceum.learner.local import AUTHORS, LocalConfig, LocalLearner, MicroBatchSums, clip_gradients
from lyceum.models.frozen import FrozenCopy, FrozenModel, FrozenSettings, TeacherSettings, freeze
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

Pieces = Sequence[Int[Tensor, " m"]]

LEFT_OUT = {"columns", "node_key"}
"""Fields of a forest that only the first process reads."""


class FsdpConfig(LocalConfig):
    """AdamW in several processes, each with a share of the weights (FSDP2); ``lyceum train --nproc N`` starts them."""

    gives: ClassVar = ("processes",)
    refuses: ClassVar = ("process-group", "constrained-tokens", "reference", "average", "frozen-scores")

    kind: Literal["fsdp"] = "fsdp"  # pyright: ignore[reportIncompatibleVariableOverride]
    optimizer: Literal["adamw"] = "adamw"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Its moments are shared between the processes as the weights are."""
    router_aux_loss_coef: None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """Not offered: the load of experts is that of a whole update, which no process has."""
    replay_routing: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]
    """Not offered yet."""

    def build(
        self,
        policy: Policy,
        *,
        total_steps: int,
        needs: frozenset[str],
        frozen: FrozenSettings | None = None,
    ) -> FsdpLearner:
        if policy.sight is not None:
            raise RecipeError("learner.kind: got 'fsdp', which takes no model that sees yet; allowed: local")
        to_all, teacher = link(), None if frozen is None else frozen.teacher  # the only one that it offers
        number = next(_numbers)
        to_all.order(
            {
                "do": "build",
                "learner": number,
                "living": sorted(_learners),
                "device": policy.device.type,
                "config": self.model_dump(mode="json"),
                "total_steps": total_steps,
                "needs": sorted(needs),
                "teacher": None if teacher is None else teacher.model_dump(mode="json"),
            }
        )
        for parameter in policy.module.parameters() if to_all.size > 1 else ():
            to_all.spread(parameter)
        learner = FsdpLearner(
            policy, self, to_all, policy.device.type, number, total_steps=total_steps, needs=needs, frozen=frozen
        )
        _learners[number] = learner
        return learner


_numbers = itertools.count()
_learners: weakref.WeakValueDictionary[int, FsdpLearner] = weakref.WeakValueDictionary()
"""Those of the first process that are still in use, by number: the other processes forget the rest."""


def serve(load: Callable[[], Policy]) -> None:
    """Follow the first process's orders until it is done.

    Args:
        load: loads the policy as the first process does; its weights are then sent.
    """
    end_with_starter()
    to_all = link()
    policy: Policy | None = None
    learners: dict[int, FsdpLearner] = {}
    while (order := to_all.order())["do"] != "stop":
        if order["do"] != "build":
            learners[order["learner"]].follow(order)
            continue
        policy = policy or load()
        with torch.no_grad():
            for parameter in policy.module.parameters():
                parameter.copy_(to_all.spread(parameter))
        learners = {number: learner for number, learner in learners.items() if number in order["living"]}
        learners[order["learner"]] = FsdpLearner(
            policy,
            FsdpConfig(**order["config"]),
            to_all,
            order["device"],
            order["learner"],
            total_steps=order["total_steps"],
            needs=frozenset(order["needs"]),
            frozen=None if order["teacher"] is None else FrozenSettings(TeacherSettings(**order["teacher"])),
        )
    close()


@contextmanager
def processes(number: int, command: Sequence[str]) -> Iterator[None]:
    """Train in this process and others on this machine, started by ``command`` (see :func:`serve`) where there are any.

    Raises:
        ProcessEnded: one of them ended before the run did.
    """
    close()  # of a run in this process alone
    try:
        with started(number, command) if number > 1 else nullcontext():
            yield
            dismiss()
    finally:
        close()  # after a failure not before, as the others would then end too, and be taken for its cause


class FsdpLearner(LocalLearner):
    """One process's part. In the first one it is the learner of the loop: it does each operation in all of them.

    Args:
        policy: whole. In the first process it is what the engine serves: a step leaves the new weights in it. It may be
            changed from outside between steps, as ``local``'s may.
        device: what every process computes on: ``cpu`` or ``cuda``.
        number: of this learner among those of the run.
    """

    def __init__(
        self,
        policy: Policy,
        config: FsdpConfig,
        to_all: Link,
        device: str,
        number: int,
        *,
        total_steps: int,
        needs: frozenset[str],
        frozen: FrozenSettings | None = None,
    ) -> None:
        self.link, self.mesh, self.number, self.whole = to_all, to_all.mesh(device), number, policy
        own = Policy(copy.deepcopy(policy.module), policy.tokenizer)
        super().__init__(own, config, total_steps=total_steps, needs=needs, frozen=frozen)
        self._seen = self._versions()
        self._forest: Forest | None = None
        self._graph: dict[str, Tensor] = {}

    def _freeze(self, names: frozenset[FrozenName], of: FrozenSettings) -> dict[FrozenName, FrozenModel]:
        """Frozen models, and every weight shared out: adapters are kept as shares, a copy is made of whole weights."""
        shares: frozenset[FrozenName] = names & {"reference"} if self.policy.adapters else frozenset()
        if shares and any(p.requires_grad for p in self.policy.output.parameters()):
            raise RecipeError(
                "model.lora.target_modules: got the output layer, whose reference learner.kind 'fsdp' cannot keep; "
                "allowed: other layers, or learner.kind=local"
            )
        frozen = freeze(self.policy, names - shares, of)
        copies = [model.policy.module for model in frozen.values() if isinstance(model, FrozenCopy)]
        self.root = shared_out([self.policy.module, *copies], self.value_head, self.mesh)
        return frozen | freeze(self.policy, shares, of)

    # Orders --------------------------------------------------------------------------------------------------------

    def _in_all(self, do: str, /, *, whole: Sequence[Tensor] | None = None, **arguments: Any) -> Any:
        """Do an operation in all processes; returns this one's result.

        Args:
            whole: tensors that the operation sends from this process to the others.
        """
        self.link.order({"do": do, "learner": self.number, **arguments})
        return OPERATIONS[do](self, **arguments, **({} if whole is None else {"whole": whole}))

    def follow(self, order: Mapping[str, Any]) -> None:
        """Do what the first process does."""
        OPERATIONS[order["do"]](self, **{name: x for name, x in order.items() if name not in ("do", "learner")})

    # What the loop calls, in the first process -----------------------------------------------------------------------

    def annotate(self, forest: Forest, needs: frozenset[str], reductions: Sequence[Reduction] = ()) -> Forest:
        self._prepare(forest)
        return super().annotate(forest, needs, reductions)

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, float]:
        self._prepare(forest)
        metrics = super().step(forest, credited, objective)
        self._publish()
        return metrics

    def gradients(self, forest: Forest, credited: Credited, objective: Objective) -> Gradients:
        self._prepare(forest)
        return super().gradients(forest, credited, objective)

    def weights(self) -> nn.Module:
        return self.whole.module

    def models(self, names: Collection[Kept] = get_args(Kept)) -> dict[str, Any]:
        whole = self.state_dict()
        return {name: whole[name] if name in names else None for name in get_args(Kept)}

    def state_dict(self) -> dict[str, Any]:
        self._refresh()
        gathered: dict[str, Any] = self._in_all("gather")
        return {**gathered, "updates": self.updates, "bad_steps": self.bad_steps, "skipped_steps": self.skipped_steps}

    def load_weights(self, state: Mapping[str, Any]) -> None:
        values = list(state["parameters"])[: len(self.parameters)]  # a value head's are the last
        reference = state["reference"] if "reference" in self.frozen else None
        self._in_all("take_weights", count=len(values), whole=values)
        if reference is not None:
            self._in_all("take_reference", whole=_tensors_of(reference))
        self._publish()

    def _load_optimizer(self, state: Mapping[str, Any]) -> None:
        moments = {
            (int(number), name): value
            for number, of_parameter in state["state"].items()
            for name, value in of_parameter.items()
        }
        small = {place: value for place, value in moments.items() if not value.dim()}
        large = {place: value for place, value in moments.items() if value.dim()}
        groups = state["param_groups"]
        self._in_all("take_moments", groups=groups, small=small, large=list(large), whole=list(large.values()))

    # What the base class computes with -------------------------------------------------------------------------------

    def _forwards(
        self, forest: Forest, model: FrozenName | None, needs: frozenset[str], reductions: Sequence[Reduction]
    ) -> Iterator[tuple[Int[Tensor, " m"], RowOutputs]]:
        rows = torch.arange(forest.n_rows)
        for pieces in rounds(forest, rows, None, self.config.micro_batch_tokens, self.link.size, shared=self._shares):
            outs = self._ask(forest, pieces, AUTHORS, needs, reductions, model=model)
            joint = {name: x.detach() for name, x in joined(outs).tensors().items()}
            yield torch.cat(list(pieces)), RowOutputs.of(joint)

    def _micro_batches(self, forest: Forest, rows: Int[Tensor, " r"], plan: StepPlan) -> Iterable[Pieces]:
        budget = self.config.micro_batch_tokens
        return rounds(forest, rows, plan.couple, budget, self.link.size, shared=self._shares)

    def _forward(
        self, forest: Forest, whole: Forest, pieces: Pieces, objective: Objective, total: MicroBatchSums
    ) -> tuple[RowOutputs, Callable[[], None]]:
        size = self.link.size
        of_round = [pieces[first : first + size] for first in range(0, len(pieces), size)]
        kept = len(of_round) == 1  # the graphs, until the gradient is known
        for piece in pieces:
            self._count(forest.select(piece), total)
        if not kept:
            total.count("rows_in_two_passes", whole.n_rows)

        reductions = still_needed(objective.reductions, forest)

        def ask(some: Pieces, *, graph: bool) -> list[RowOutputs]:
            return self._ask(forest, some, objective.origins, objective.needs, reductions, graph=graph)

        outs = [out for some in of_round for out in ask(some, graph=kept)]
        with torch.no_grad():
            out = joined(outs)

        def back() -> None:
            gradients = cut_like(outs, out)
            for first, some in zip(range(0, len(pieces), size), of_round, strict=True):
                if not kept:
                    ask(some, graph=True)
                self._in_all("backward", gradients=gradients[first : first + size])

        return out, back

    def _ask(
        self,
        forest: Forest,
        pieces: Pieces,
        origins: Sequence[Origin],
        needs: frozenset[str],
        reductions: Sequence[Reduction],
        *,
        model: FrozenName | None = None,
        graph: bool = False,
    ) -> list[RowOutputs]:
        """Outputs of at most a piece per process, without their graphs, which the processes keep for ``backward``."""
        lengths = forest.row_length
        shortest = min(torch.cat(list(pieces)).tolist(), key=lambda row: int(lengths[row]))
        idle = [torch.tensor([shortest])] * (self.link.size - len(pieces))
        described = [describe(reduction) for reduction in reductions] if self.link.size > 1 else list(reductions)
        found: list[Mapping[str, Tensor]] = self._in_all(
            "forward",
            rows=[*pieces, *idle],
            origins=[int(origin) for origin in origins],
            needs=sorted(needs),
            reductions=described,
            model=model,
            graph=graph,
        )
        device = self.policy.device
        return [RowOutputs.of({name: x.to(device) for name, x in out.items()}) for out in found[: len(pieces)]]

    def _zero(self) -> None:
        self._in_all("zero")

    def _clip(self) -> float:
        return self._in_all("clip")

    def _apply(self) -> float:
        return self._in_all("apply", lr=self.optimizer.param_groups[0]["lr"])

    def _take_gradients(self) -> list[Tensor]:
        gradients: list[Tensor] = self._in_all("gather_gradients")
        self._zero()
        return gradients

    def _prepare(self, forest: Forest) -> None:
        """Have all processes know the forest, and the policy's weights as they are."""
        self._refresh()
        known = self._forest
        if known is None or known.token is not forest.token or known.untrained is not forest.untrained:
            tensors = {f.name: getattr(forest, f.name) for f in fields(forest) if f.name not in LEFT_OUT}
            self._in_all("bring", forest=tensors)
            self._forest = forest

    def _refresh(self) -> None:
        if self._versions() != self._seen:
            weights = trained(self.whole)
            self._in_all("take_weights", count=len(weights), whole=weights)
            self._seen = self._versions()

    def _publish(self) -> None:
        self._in_all("publish")
        self._seen = self._versions()

    def _versions(self) -> list[int]:
        """Counts of the changes in place to the whole policy's weights."""
        return [p._version for p in trained(self.whole)]

    # The operations, in each process ---------------------------------------------------------------------------------

    def bring(self, forest: dict[str, Any]) -> None:
        self._forest = Forest(**forest)

    def forward(
        self,
        rows: Pieces,
        origins: Sequence[int],
        needs: Sequence[str],
        reductions: Sequence[Any],
        model: FrozenName | None,
        graph: bool,
    ) -> list[Mapping[str, Tensor]]:
        assert self._forest is not None
        part = self._forest.select(rows[self.link.rank])
        reduce = [rebuilt(x) if isinstance(x, dict) else x for x in reductions]
        authors = tuple(Origin(origin) for origin in origins)
        self._train_mode(graph)
        with nullcontext(self.policy) if model is None else self.frozen[model].loaded() as policy:
            with torch.set_grad_enabled(graph):
                out: dict[str, Tensor] = self.root(
                    lambda: self._row_outputs(policy, part, authors, frozenset(needs), reduce).tensors()
                )
            if not graph:
                reshard(self.root)  # else the next forward would find the root's weights as they are now
        self._train_mode(False)
        self._graph = out if graph else {}
        return self.link.collect({name: x.detach() for name, x in out.items()})

    def backward(self, gradients: Sequence[Mapping[str, Tensor]]) -> None:
        graph, self._graph = self._graph, {}
        idle = self.link.rank >= len(gradients)
        of_rank = gradients[0 if idle else self.link.rank]
        outputs = [graph[name] for name in of_rank]
        own = [torch.zeros_like(x) for x in outputs] if idle else [x.to(self.policy.device) for x in of_rank.values()]
        torch.autograd.backward(outputs, own)

    def zero(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def clip(self) -> float:
        shares: list[Any] = []
        for parameter in self.parameters:
            if parameter.grad is not None:
                shares.append(share_of(parameter))
                shares[-1].grad = share_of(parameter.grad)
        return clip_gradients(shares, self.config.max_grad_norm, self._total_norm)

    def apply(self, lr: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return float(self._total_norm([share_of(p) for p in self.parameters], math.inf))

    def _total_norm(self, shares: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
        """Of tensors of which every process has a share, perhaps an empty one."""
        own = [share for share in shares if share.numel()]
        norm = nn.utils.get_total_norm(own, norm_type) if own else torch.zeros(())
        return torch.linalg.vector_norm(self.link.numbers(norm), norm_type)

    def gather_gradients(self) -> list[Tensor]:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained(self.policy)]
        return [whole_of(gradient).cpu() for gradient in gradients]

    def gather(self) -> dict[str, Any]:
        """The state, every tensor whole, as ``local`` has it; kept by the first process alone."""
        state = self.optimizer.state_dict()
        reference = self.frozen["reference"].state() if "reference" in self.frozen else None
        gathered = {
            "parameters": [p.detach() for p in self.parameters],
            "optimizer": state,
            "reference": reference,
            "average": None,
        }
        return self._kept(gathered)

    def _kept(self, state: Any) -> Any:
        if isinstance(state, Mapping):
            return {name: self._kept(x) for name, x in state.items()}
        if isinstance(state, list):
            return [self._kept(x) for x in state]
        if not isinstance(state, Tensor):
            return state
        found = whole_of(state)
        return found.cpu() if self.link.rank == 0 else None

    def take_weights(self, count: int, whole: Sequence[Tensor] | None = None) -> None:
        self._take(self.parameters[:count], whole)

    def take_reference(self, whole: Sequence[Tensor] | None = None) -> None:
        state = self.frozen["reference"].state()
        assert state is not None
        self._take(_tensors_of(state), whole)

    def take_moments(
        self,
        groups: list[dict[str, Any]],
        small: Mapping[tuple[int, str], Tensor],
        large: Sequence[tuple[int, str]],
        whole: Sequence[Tensor] | None = None,
    ) -> None:
        ordered = [p for group in self.optimizer.param_groups for p in group["params"]]
        places = {(number, name): torch.zeros_like(ordered[number]) for number, name in large}
        self._take(list(places.values()), whole)
        state: dict[int, dict[str, Tensor]] = {}
        for (number, name), value in {**small, **places}.items():
            state.setdefault(number, {})[name] = value
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _take(self, places: Sequence[Tensor], whole: Sequence[Tensor] | None) -> None:
        """Overwrite tensors by the first process's whole ones, one after another to save memory."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        with torch.no_grad():
            for number, place in enumerate(places):
                value = torch.empty(place.shape, dtype=place.dtype) if whole is None else whole[number].to(place.dtype)
                value = self.link.spread(value)
                if isinstance(place, DTensor):
                    value = distribute_tensor(value, place.device_mesh, place.placements, src_data_rank=None)
                place.copy_(value)

    def publish(self) -> None:
        """Copy the policy's weights into the whole one, in the first process."""
        with torch.no_grad():
            for own, whole in zip(trained(self.policy), trained(self.whole), strict=True):
                found = whole_of(own)
                if self.link.rank == 0:
                    whole.copy_(found)


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    operation.__name__: operation
    for operation in (
        *(FsdpLearner.bring, FsdpLearner.forward, FsdpLearner.backward, FsdpLearner.zero, FsdpLearner.clip),
        *(FsdpLearner.apply, FsdpLearner.gather, FsdpLearner.gather_gradients, FsdpLearner.publish),
        *(FsdpLearner.take_weights, FsdpLearner.take_reference, FsdpLearner.take_moments),
    )
}
"""What the first process may order."""


def shared_out(models: Sequence[nn.Module], value_head: nn.Module | None, mesh: Any) -> nn.Module:
    """A root that every forward enters, and whose call runs a function: inside, FSDP2 has each layer's weights whole.

    Each layer is a unit of its own, whose weights are whole only while it computes; embeddings, output layers and norms
    belong to the root.
    """
    from torch.distributed.fsdp import fully_shard

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([*models, *([] if value_head is None else [value_head])])

        def forward(self, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
            return compute()

    root = Root()
    layers = [module for module in root.modules() if isinstance(module, transformers.GradientCheckpointingLayer)]
    # A value head is in float32 whatever the model's dtype, and a unit has one dtype.
    for unit in (*layers, *([] if value_head is None else [value_head]), root):
        sharded: Any = fully_shard(unit, mesh=mesh)
        # A loss is a sum over the step's rows: gradients add up, and are not averaged over processes.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
    return root


def reshard(root: Any) -> None:
    root.reshard()


def trained(policy: Policy) -> list[nn.Parameter]:
    return [p for p in policy.module.parameters() if p.requires_grad]


def whole_of(tensor: Tensor) -> Tensor:
    """A tensor that may be shared out, whole: every process has to ask."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_of(tensor: Tensor) -> Tensor:
    """This process's share, in the same memory."""
    from torch.distributed.tensor import DTensor

    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def cut_like(outs: Sequence[RowOutputs], whole: RowOutputs) -> list[dict[str, Tensor]]:
    """The gradient that a loss left on joined outputs, cut into those of its parts."""
    gradients = {name: x.grad for name, x in whole.tensors().items() if x.grad is not None}
    found: list[dict[str, Tensor]] = []
    first = 0
    for out in outs:
        rows, width = out.logprob.shape
        found.append({name: x[first : first + rows, :width] for name, x in gradients.items()})
        first += rows
    return found


def rounds(
    forest: Forest,
    rows: Int[Tensor, " r"],
    couple: Int[Tensor, " R"] | None,
    max_tokens: int,
    size: int,
    *,
    shared: bool = True,
) -> list[Pieces]:
    """Split rows into rounds of a piece per process: as few as fit the budget, their pieces as small as possible.

    Args:
        couple: rows of one number stay in one round, which has more pieces where a couple needs them.
        max_tokens: maximum unique tokens of a piece.
        size: number of processes.
        shared: see :func:`~lyceum.learner._forward.micro_batches`.
    """

    def within(tokens: int) -> list[Pieces]:
        if couple is None:
            runs = [[piece] for piece in micro_batches(forest, rows, tokens, shared=shared)]
        else:
            runs = list(coupled_micro_batches(forest, rows, couple, tokens, shared=shared))
        found: list[list[Int[Tensor, " m"]]] = []
        for run in runs:
            if found and len(found[-1]) + len(run) <= size:
                found[-1] += run
            else:
                found.append([*run])
        return list(found)

    def forwards(found: Sequence[Pieces]) -> int:
        return sum(math.ceil(len(pieces) / size) for pieces in found)

    best = within(max_tokens)
    low, high = 0, min(max_tokens, int(forest.row_length[rows].sum())) if size > 1 and best else 0
    while high - low > 1:
        middle = (low + high) // 2
        found = within(middle)
        if forwards(found) <= forwards(best):
            best, high = found, middle
        else:
            low = middle
    return best


def describe(reduction: Reduction) -> dict[str, Any]:
    """A reduction for other processes: its class by name, and its fields.

    Raises:
        RecipeError: it is not a dataclass with plain fields.
    """
    kind = type(reduction)
    if not is_dataclass(reduction) or isinstance(reduction, type) or "<locals>" in kind.__qualname__:
        raise RecipeError(
            f"learner.kind: got 'fsdp', whose processes cannot be sent the reduction {kind.__qualname__}; allowed: a "
            "dataclass of plain fields at the top of a module, or learner.kind=local"
        )
    return {"module": kind.__module__, "name": kind.__qualname__, "fields": asdict(reduction)}


def rebuilt(description: Mapping[str, Any]) -> Reduction:
    return getattr(importlib.import_module(description["module"]), description["name"])(**description["fields"])


def _tensors_of(state: Mapping[str, Any]) -> list[Tensor]:
    """A frozen model's: by name, or the adapters' in one list."""
    return [x for value in state.values() for x in (value if isinstance(value, list) else [value])]
