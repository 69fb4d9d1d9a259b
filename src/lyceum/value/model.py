"""A transformer value model of paths: a token classifier with one label, TRL's format of process reward models."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from jaxtyping import Float

from lyceum.core.component import PathText
from lyceum.core.settings import Composition
from lyceum.core.tree import Node
from lyceum.core.types import Judgement, MarkedPath
from lyceum.core.user_files import user_file
from lyceum.models.load import merged, save_module
from lyceum.models.packed_paths import packed
from lyceum.models.policy import Policy, redirect_attention
from lyceum.models.tree_attention import NotOverTrees
from lyceum.models.weights import Checkpoint, cast_weights, check_finite, check_folder, read_object
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers
from lyceum.utils.library_messages import told_once
from lyceum.utils.paths import local_path
from lyceum.value.training import TrainedPaths, TrainedValueSettings, not_handed_on

Over = Literal["end", "last", "min", "product"]


class ClassifierSettings(TrainedValueSettings):
    """Settings of value models that are token classifiers."""

    path: PathText | None = None
    """Folder or hub name of a ``*ForTokenClassification`` model with one label, or two (incorrect, correct), and the
    policy's own vocabulary; null copies the policy's body, under a new head that predicts 0.5 for every path."""
    allow_unused_weights: tuple[str, ...] = ()
    """Names of weights in its files that the token classifier may leave unused; ``*`` is a wildcard."""

    def check(self, stage: Composition) -> list[str]:
        lines = [] if self.path is None else wrong_folder(self.path, self.allow_unused_weights)
        if self.from_stage is not None:
            lines += not_handed_on(self.from_stage, self.kind, stage.before)
        return lines


class PathModel(ClassifierSettings):
    """A Hugging Face token classifier; the sigmoid of its logit is a path's value.

    Source: the value model of ReST-MCTS*, arXiv:2406.03816, section 3.3 (there a linear head without a sigmoid, on the
    last token); models with a label for each step, as TRL trains them, are read by ``over``.
    """

    kind: Literal["model"] = "model"
    over: Over = "end"
    """Which logits count: that of the path's last token, or those at the ends of its steps: the last one, the lowest,
    or the product of all."""
    separator: str = ""
    """Token, as text, that ends a step; if empty, every node of the tree is a step."""

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.separator and self.over == "end":
            lines.append(
                f"value.separator: got {self.separator!r} with value.over 'end', which reads the last token alone; "
                "allowed: last, min or product with it"
            )
        return lines

    def build(self, policy: Policy, *, seed: int) -> PathValues:
        return PathValues(self, policy, seed=seed)


class Classifier(TrainedPaths):
    """A token classifier and its training."""

    def __init__(self, settings: ClassifierSettings, policy: Policy, *, seed: int) -> None:
        model = (
            copied(policy) if settings.path is None else loaded(settings.path, policy, settings.allow_unused_weights)
        )
        if policy.by_rows is None and policy.states is None:
            try:
                redirect_attention(model)
            except NotOverTrees as error:
                raise RecipeError(f"value.path: {error}") from error
        self.model, self.head = model, head_of(model)
        self.body = cast(nn.Module, getattr(model, model.base_model_prefix))
        super().__init__(settings, list(model.parameters()), seed=seed)
        self.tokenizer = policy.tokenizer

    @property
    def device(self) -> torch.device:
        return self.model.device

    def states(
        self, paths: Sequence[Sequence[int]], places: Sequence[Sequence[int]]
    ) -> Iterator[tuple[Float[Tensor, "place width"], list[int]]]:
        """For each micro-batch of paths: the last hidden states at the places of its paths, one path after another, and
        how many each path has."""
        done = 0
        for trie in packed(paths, self.settings.micro_batch_tokens):
            asked = places[done : done + len(trie.rows)]
            where = [row[at] for row, of_row in zip(trie.rows, asked, strict=True) for at in of_row]
            hidden = trie.hidden(self.body, self.device)
            yield hidden[torch.tensor(where, device=hidden.device)], [len(of_row) for of_row in asked]
            done += len(trie.rows)

    def logit(self, states: Float[Tensor, "place width"]) -> Float[Tensor, " place"]:
        """The head's, of hidden states."""
        z = self.head(states).float()
        # With two labels the softmax of the second is the sigmoid of their difference.
        return z[:, 0] if z.shape[1] == 1 else z[:, 1] - z[:, 0]

    def save(self, folder: Path) -> None:
        """A Hugging Face folder, which ``AutoModelForTokenClassification`` loads."""
        save_module(self.model, self.tokenizer, folder)


class PathValues(Classifier):
    """Values by the head's logits."""

    def __init__(self, settings: PathModel, policy: Policy, *, seed: int) -> None:
        super().__init__(settings, policy, seed=seed)
        self.settings = settings
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
        for states, counts in self.states(paths, places):
            yield self.logit(states).split(counts)

    def path_logits(self, paths: Sequence[MarkedPath]) -> Iterator[Float[Tensor, " path"]]:
        for part in self._logits([path.tokens for path in paths], [read_at(path) for path in paths]):
            yield torch.stack([logits.sum() for logits in part])

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        """Each step's logit with the losses ``sum`` and ``pairwise``, its sigmoid with the others; the outcome is the
        sum of the steps with ``sum``, else the path's own, by ``over``."""
        of_steps = [[end - 1 for end in path.ends] for path in paths]
        places = [[*steps, len(path.tokens) - 1] for steps, path in zip(of_steps, paths, strict=True)]
        with torch.no_grad():
            parts = self._logits([path.tokens for path in paths], places)
            return [self._judgement(logits) for part in parts for logits in part]

    def _judgement(self, logits: Float[Tensor, " place"]) -> Judgement:
        steps, end = logits[:-1], logits[-1:]
        if self.settings.loss == "sum":
            return Judgement(float(steps.sum() if len(steps) else end), steps.tolist())
        if self.settings.loss == "pairwise":
            return Judgement(float(end), steps.tolist())
        read = steps if len(steps) and self.settings.over in ("min", "product") else end
        return Judgement(worth(read, self.settings.over), torch.sigmoid(steps).tolist())


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


def read_at(path: MarkedPath) -> list[int]:
    """Positions of the tokens that end a path's steps, or that end the path."""
    return [end - 1 for end in path.ends] or [len(path.tokens) - 1]


def copied(policy: Policy) -> transformers.PreTrainedModel:
    """The policy's current body, adapters merged, under a head that predicts 0.5 everywhere.

    Raises:
        RecipeError: transformers has no token classifier of this architecture.
    """
    source = merged(policy.module) if policy.adapters else copy.deepcopy(policy.module)
    causal = cast(transformers.PreTrainedModel, source)
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
    cast_weights(model, causal.dtype, policy.device)
    return model.requires_grad_(True).eval()


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
