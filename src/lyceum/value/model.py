"""A transformer value model of paths: a token classifier with one label, TRL's format of process reward models."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.component import BatchTokens, PathText, require_keys
from lyceum.core.settings import Composition, Left, ValueSettings
from lyceum.core.tree import Node
from lyceum.core.user_files import user_file
from lyceum.models.load import local_path, save_module
from lyceum.models.packed_paths import packed
from lyceum.models.policy import Policy, redirect_attention
from lyceum.models.weights import Checkpoint, check_finite, check_folder, largest_weight, read_object
from lyceum.utils.errors import Diverged, RecipeError, nearest
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers
from lyceum.utils.library_messages import told_once
from lyceum.utils.seeds import counter_seed
from lyceum.utils.terminal import quoted
from lyceum.value.targets import explained_variance

Over = Literal["end", "last", "min", "product"]
Loss = Literal["mse", "bce"]


class PathModel(ValueSettings):
    """A Hugging Face token classifier; the sigmoid of its logit is a path's value.

    Source: the value model of ReST-MCTS*, arXiv:2406.03816, section 3.3 (there a linear head without a sigmoid, on the
    last token); models with a label for each step, as TRL trains them, are read by ``over``.
    """

    trainable: ClassVar[bool] = True

    kind: Literal["model"] = "model"
    path: PathText | None = None
    """Folder or hub name of a ``*ForTokenClassification`` model with one label, or two (incorrect, correct), and the
    policy's own vocabulary; null copies the policy's body, under a new head that predicts 0.5 for every path."""
    from_stage: str | None = None
    """Name of an earlier stage of the run, whose value model is taken over instead of one from ``path``."""
    allow_unused_weights: tuple[str, ...] = ()
    """Names of weights in its files that the token classifier may leave unused; ``*`` is a wildcard."""
    over: Over = "end"
    """Which logits count: that of the path's last token, or those at the ends of its steps: the last one, the lowest,
    or the product of all."""
    separator: str = ""
    """Token, as text, that ends a step; if empty, every node of the tree is a step."""
    loss: Loss = "mse"
    """Training loss: squared error of the sigmoid (the papers' choice), or cross-entropy."""
    lr: float = Field(default=3e-6, gt=0, le=1e6)
    """Learning rate of AdamW; 3e-6 in the authors' code."""
    epochs: int = Field(default=2, ge=1)
    """Epochs over the examples of a round."""
    batch: int = Field(default=64, ge=1)
    """Paths per update."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    micro_batch_tokens: BatchTokens = 8192
    """Unique tokens per forward pass; affects memory, but neither values nor gradients."""

    @model_validator(mode="after")
    def _of_one_origin(self) -> PathModel:
        if self.path is not None and self.from_stage is not None:
            raise ValueError(
                f"from_stage: got {quoted(self.from_stage)} with path {quoted(self.path)}; allowed: one of them"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        lines = [] if self.path is None else wrong_folder(self.path, self.allow_unused_weights)
        if self.from_stage is not None:
            lines += not_handed_on(self.from_stage, stage.before)
        if self.separator and self.over == "end":
            lines.append(
                f"value.separator: got {self.separator!r} with value.over 'end', which reads the last token alone; "
                "allowed: last, min or product with it"
            )
        return lines

    @property
    def untrained(self) -> bool:
        return self.path is None and self.from_stage is None

    def handed_on(self, left_by: Callable[[str], Path]) -> PathModel:
        if self.from_stage is None:
            return self
        return self.model_copy(update={"path": str(left_by(self.from_stage)), "from_stage": None})

    def build(self, policy: Policy, *, seed: int) -> PathValues:
        return PathValues(self, policy, seed=seed)


class PathValues:
    """Its state: the classifier, its optimiser, and how often it was updated."""

    def __init__(self, settings: PathModel, policy: Policy, *, seed: int) -> None:
        self.settings, self.tokenizer, self.seed = settings, policy.tokenizer, seed
        model = (
            copied(policy) if settings.path is None else loaded(settings.path, policy, settings.allow_unused_weights)
        )
        try:
            redirect_attention(model)
        except NotImplementedError as error:
            raise RecipeError(f"value.path: {error}") from error
        self.model, self.head = model, head_of(model)
        self.body = cast(nn.Module, getattr(model, model.base_model_prefix))
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=settings.lr, weight_decay=0.0)
        self.updates = self.skipped = 0
        self.separators = separators(settings.separator, policy)

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        tokens = [path.path_tokens() for path in paths]
        places = [self.places(path, ids) for path, ids in zip(paths, tokens, strict=True)]
        with torch.no_grad():
            parts = self._logits(tokens, places)
            return [worth(logits, self.settings.over) for part in parts for logits in part]

    def places(self, path: Node, tokens: Sequence[int]) -> list[int]:
        """Positions of a path where logits are read: its last token, or the ends of its steps, where it has any."""
        end = len(tokens) - 1
        if self.settings.over == "end":
            return [end]
        root, *below = path.path()
        ends, at = [], len(root.tokens)
        if self.separators is None:
            for node in below:
                at += len(node.tokens)
                ends.append(at - 1)
        else:
            ends = [i for i in range(at, end + 1) if tokens[i] in self.separators]
            if path.finish == "stop" and ends[-1:] != [end]:
                ends.append(end)  # the last step of a finished path ends with it
        return ends or [end]

    def _logits(
        self, paths: Sequence[Sequence[int]], places: Sequence[Sequence[int]]
    ) -> Iterator[tuple[Float[Tensor, " place"], ...]]:
        """For each micro-batch of paths: the logits at the places of each path."""
        done = 0
        for trie in packed(paths, self.settings.micro_batch_tokens):
            asked = places[done : done + len(trie.rows)]
            where = [row[at] for row, of_row in zip(trie.rows, asked, strict=True) for at in of_row]
            hidden = trie.hidden(self.body, self.model.device)
            z = self.head(hidden[torch.tensor(where, device=hidden.device)]).float()
            # With two labels the softmax of the second is the sigmoid of their difference.
            logit = z[:, 0] if z.shape[1] == 1 else z[:, 1] - z[:, 0]
            yield logit.split([len(of_row) for of_row in asked])
            done += len(trie.rows)

    def fit(self, examples: Sequence[tuple[Sequence[int], float]]) -> dict[str, float]:
        """Regress the predictions at paths' last tokens on the paths' values.

        Args:
            examples: (token ids from the prompt's first on, value in 0 .. 1) of each path.
        """
        for _, target in examples:
            if not 0 <= target <= 1:
                raise ValueError(f"a path's value is {target}; allowed: 0 to 1")
        if not examples:
            return {"paths": 0.0}
        metrics = {"paths": float(len(examples))} | self._foreseen(examples)
        losses: list[float] = []
        for epoch in range(self.settings.epochs):
            of_epoch = 0.0
            order = self._order(len(examples), epoch)
            for start in range(0, len(order), self.settings.batch):
                chosen = order[start : start + self.settings.batch]
                of_epoch += self._update([examples[i] for i in chosen]) * len(chosen) / len(order)
            losses.append(of_epoch)
        metrics |= {"updates": float(self.updates), "skipped": float(self.skipped)}
        return metrics | {"loss/first": losses[0], "loss/last": losses[-1]}

    def _foreseen(self, examples: Sequence[tuple[Sequence[int], float]]) -> dict[str, float]:
        """Explained variance of the paths' values by predictions made before training on them."""
        paths, targets = [list(path) for path, _ in examples], [target for _, target in examples]
        with torch.no_grad():
            parts = self._logits(paths, [[len(path) - 1] for path in paths])
            explained = explained_variance([worth(logits, "end") for part in parts for logits in part], targets)
        return {} if explained is None else {"explained-variance": explained}

    def _order(self, n: int, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed(counter_seed("value", self.seed, self.updates, epoch))
        return torch.randperm(n, generator=generator).tolist()

    def _update(self, batch: Sequence[tuple[Sequence[int], float]]) -> float:
        # Sorted, so that paths of one tree are adjacent and share their prefixes.
        batch = sorted(batch, key=lambda example: tuple(example[0]))
        paths = [path for path, _ in batch]
        target = torch.tensor([target for _, target in batch], device=self.model.device)
        self.optimizer.zero_grad(set_to_none=True)
        total, done = 0.0, 0
        for logits in self._logits(paths, [[len(path) - 1] for path in paths]):
            of_part = target[done : done + len(logits)]
            loss = path_loss(torch.cat(logits), of_part, self.settings.loss).sum() / len(batch)
            loss.backward()
            total, done = total + float(loss.detach()), done + len(logits)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        if math.isfinite(total) and bool(norm.isfinite()):
            self.optimizer.step()
            if not math.isfinite(largest_weight(self.parameters)):
                raise Diverged(f"the value model diverged at its update {self.updates + 1}; lower value.lr")
        else:
            self.skipped += 1
        self.updates += 1
        return total

    def save(self, folder: Path) -> None:
        """A Hugging Face folder: ``{kind: model, path: FOLDER}`` and ``AutoModelForTokenClassification`` load it."""
        save_module(self.model, self.tokenizer, folder)

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("value.model", given=state, needed=self.state_dict())
        if len(state["parameters"]) != len(self.parameters):
            raise ValueError(f"value.model: {len(state['parameters'])} tensors saved, {len(self.parameters)} are here")
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(dict(state["optimizer"]))
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])


def worth(logits: Float[Tensor, " step"], over: Over) -> float:
    """v = sigmoid(z) of the last, or the minimum or the product of all of them; in 0 .. 1.

    Args:
        logits: z at the ends of a path's steps, in order; a single one with ``end``.
    Source:
        Let's Verify Step by Step, arXiv:2305.20050, appendix F (minimum and product).
    """
    said = torch.sigmoid(logits)
    match over:
        case "end" | "last":
            return float(said[-1])
        case "min":
            return float(said.min())
        case "product":
            return float(said.prod())


def path_loss(logits: Float[Tensor, " p"], target: Float[Tensor, " p"], loss: Loss) -> Float[Tensor, " p"]:
    """(sigmoid(z) - t)^2, or -t ln sigmoid(z) - (1 - t) ln(1 - sigmoid(z)) in nats.

    Args:
        target: t, in 0 .. 1.
    Source:
        ReST-MCTS*, arXiv:2406.03816, section 3.3 (squared error).
    """
    if loss == "mse":
        return (torch.sigmoid(logits) - target).square()
    return nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")


def copied(policy: Policy) -> transformers.PreTrainedModel:
    """The policy's current body, adapters merged, under a head that predicts 0.5 everywhere.

    Raises:
        RecipeError: transformers has no token classifier of this architecture.
    """
    source = copy.deepcopy(policy.module)
    causal = cast(transformers.PreTrainedModel, cast(Any, source).merge_and_unload() if policy.adapters else source)
    config = copy.deepcopy(causal.config)
    config.num_labels, config._attn_implementation = 1, None
    try:
        with torch.random.fork_rng(devices=[]):  # random initial weights are overwritten below
            model = transformers.AutoModelForTokenClassification.from_config(config, trust_remote_code=False)
    except ValueError as error:
        raise RecipeError(
            f"value.path: got null, but transformers has no token classifier of {type(causal).__name__}; "
            "allowed: the folder of one, or another value.kind"
        ) from error
    body = cast(nn.Module, getattr(causal, causal.base_model_prefix))
    cast(nn.Module, getattr(model, model.base_model_prefix)).load_state_dict(body.state_dict())
    head = head_of(model)
    # Zero: no random initial weights that need a seed, and the same prediction for every path.
    nn.init.zeros_(head.weight)
    if head.bias is not None:
        nn.init.zeros_(head.bias)
    return cast(Any, model).to(device=policy.device, dtype=causal.dtype).requires_grad_(True).eval()


def loaded(path: str, policy: Policy, may_leave: tuple[str, ...] = ()) -> transformers.PreTrainedModel:
    """A token classifier that reads the policy's own tokens.

    Args:
        may_leave: patterns of weights in its files that the token classifier may leave unused.
    Raises:
        RecipeError: it cannot be loaded, is not a token classifier, or has another vocabulary than the policy.
    """
    if lines := wrong_folder(path, may_leave):
        raise RecipeError(lines)
    checkpoint = _checkpoint(path, may_leave)
    with (
        told_once(f"value.path: {path}"),
        user_file("value.path", f"the tokenizer of {path} cannot be loaded", "save the policy's own one beside it"),
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.source, **checkpoint.extra)
    model = checkpoint.load(transformers.AutoModelForTokenClassification, policy.causal.dtype)
    check_finite("value.path", path, model)
    if tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise RecipeError(
            f"value.path: the tokenizer of {path} is not the policy's, whose tokens it would read; allowed: a model "
            "trained with the policy's vocabulary, such as the value/ that a run of this policy left"
        )
    return cast(Any, model).to(policy.device).eval()


def not_handed_on(name: str, before: Mapping[str, frozenset[Left]]) -> list[str]:
    """Why no stage of that name hands a value model on; none where one does.

    Args:
        before: the stages that end before, by name: what each leaves.
    """
    able = [stage for stage, left in before.items() if "value" in left]
    if name in able:
        return []
    why = "a stage that trains no value model" if name in before else "which is no stage before this one"
    known = ", ".join(able) or "null, as no stage before this one trains a value model"
    return [f"value.from_stage: got {quoted(name)}{nearest(name, able)}, {why}; allowed: {known}"]


def wrong_folder(path: str, may_leave: tuple[str, ...] = ()) -> list[str]:
    """Errors in a local folder that its files show without reading a weight; none for what may be a hub name."""
    checkpoint = _checkpoint(path, may_leave)
    place = Path(checkpoint.source)
    allowed = "allowed: the folder of a model *ForTokenClassification, owner/name of a hub, or null"
    if not place.exists():
        local = path.startswith((".", "/", "~")) or path.count("/") != 1
        return [f"value.path: no folder {path}; {allowed}"] if local else []
    try:
        check_folder("value.path", path, place)
        named = read_object("value.path", place / "config.json").get("architectures")
        named = named if isinstance(named, list) else []
        if not any(str(name).endswith("ForTokenClassification") for name in named):
            return [f"value.path: {path} holds {', '.join(map(str, named)) or 'no architecture'}; {allowed}"]
        checkpoint.check(transformers.AutoModelForTokenClassification)
    except RecipeError as error:
        return error.lines
    return []


def _checkpoint(path: str, may_leave: tuple[str, ...]) -> Checkpoint:
    place = local_path(path)
    source = str(place) if place.exists() else path
    return Checkpoint("value", path, source, {"trust_remote_code": False}, may_leave=may_leave)


def head_of(model: transformers.PreTrainedModel) -> nn.Linear:
    """The layer that makes labels of hidden states.

    Raises:
        RecipeError: it is not found, has more than two labels, or the model's attention is not causal.
    """
    head = getattr(model, "score", None) or getattr(model, "classifier", None)
    if not isinstance(head, nn.Linear) or head.out_features > 2:
        said = head.out_features if isinstance(head, nn.Linear) else "no linear head"
        raise RecipeError(f"value.path: {type(model).__name__} has {said} labels; allowed: 1, or 2 (wrong, right)")
    if any(getattr(module, "is_causal", True) is False for module in model.modules()):
        raise RecipeError(
            f"value.path: {type(model).__name__} lets tokens see those after them, so that a path's value would not "
            "be its own; allowed: a causal model (Llama, Qwen, Mistral, ...)"
        )
    return head


def separators(text: str, policy: Policy) -> frozenset[int] | None:
    """Tokens that hold a separator; None where there is none.

    Raises:
        RecipeError: no token of the vocabulary holds it.
    """
    if not text:
        return None
    found = frozenset(i for i in policy.tokenizer.get_vocab().values() if text in policy.decode([i]))
    if not found:
        raise RecipeError(f"value.separator: no token of the policy's vocabulary holds {text!r}")
    return found
