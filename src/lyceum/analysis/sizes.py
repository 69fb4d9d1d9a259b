"""How much memory and disk a run will take, told from counts and shapes before anything is loaded.

Everything is in bytes. Lengths are the largest that the recipe allows, so that a run whose completions end earlier
takes less. ``benchmarks/sizes.py`` holds what is told against what was measured; figures for GPUs are the same sums
over a card's memory, and were not measured on one. Not counted are the kernels that oneDNN compiles for each shape and
keeps, in bfloat16 on a CPU: 320 MiB in two steps of the smallest model there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import disk_usage
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from lyceum.core.settings import Composition, StageSettings
from lyceum.core.types import TaskSource
from lyceum.evaluation.held_out import first_tasks
from lyceum.models.load import LoraSettings, ModelSettings, config_of, weight_shapes
from lyceum.models.renderer import Renderer
from lyceum.models.rounded import Kind
from lyceum.models.tree_attention import BLOCK_ELEMENTS, MASK_ELEMENTS
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import allow_code
from lyceum.run.checkpoint import SHARD_BYTES
from lyceum.run.folder import MOST_TRAJECTORIES
from lyceum.training.stages.method import Method
from lyceum.training.stages.offline import Offline
from lyceum.training.stages.online import Online
from lyceum.training.stages.sft import SupervisedStage, episode_of
from lyceum.training.train import Ready
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import torch
from lyceum.utils.memory import free_memory, resident

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MIB = 1 << 20
FLOAT = 4
"""Bytes of a float32 number, in which logits, value heads and slow averages are."""

CARDS = {
    "t4": 15_360,
    "l4": 23_034,
    "a10g": 23_028,
    "rtx4090": 24_564,
    "a100-40": 40_960,
    "a100": 81_920,
    "h100": 81_559,
    "h200": 143_771,
    "b200": 183_359,
}
"""Memory of usual cards (MiB), as their driver reports it."""

CONTEXT_BYTES = 600 * MIB
"""What CUDA and its libraries take of a card's memory before any tensor; larger on newer cards."""

LOGIT_ELEMENTS = 1 << 24
"""Logits that the learner holds at once, and computes again in the backward pass beyond it (``models/policy.py``)."""

PACKED_FROM = 1 << 17
"""Elements from which the embedded engine keeps a second copy of a weight on a CPU (``engine/cpu/decode.py``)."""

LATER_BYTES = 64 * MIB
"""What libraries take that a run imports after its first step: TensorBoard's, Arrow's."""

HEAP_PIECE = 32 * MIB
"""Size from which glibc's allocator always gives freed memory back to the system (the limit of its dynamic
M_MMAP_THRESHOLD on 64-bit machines, mallopt(3)); smaller pieces it keeps for the next step."""
HEAP_WASTE, HEAP_WASTE_OF_ADAPTERS = 1.2, 1.5
"""What it then holds, relative to what was used at once: pieces of one step do not fill the gaps that another left.
Measured on two steps of the models of ``benchmarks/sizes.py``; that of adapters, which is larger for reasons that were
not found, is fitted to its two runs with adapters."""

PACKED_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types whose weights it does so for."""


@dataclass(frozen=True)
class Shape:
    """A model's counts.

    Attributes:
        parameters, trained: numbers in all its weights, and in those that are trained.
        packed: numbers that the embedded engine holds twice on a CPU.
        largest: numbers in its largest weight.
        layers, width, vocabulary: of the text model.
        inner: width of a feed-forward layer; of experts, that of all that a token passes.
        query, key: heads times their width, of queries, and of keys (or values).
        heads, key_heads: their numbers.
        normed_heads: whether queries and keys have norms of their own.
        rank: of adapters; 0 where the weights are trained.
        adapted, adapted_inputs: of a layer, its matrices that have adapters, and the sum of their inputs' widths.
        rounded, rounded_bytes: numbers that are held in 8 or 4 bits, and the bytes that they take with their scales.
        unpacked: numbers in the largest matrix of these, which is unpacked as it is used.
        rounded_here: whether the whole weights are loaded before they are rounded.
    """

    parameters: int
    trained: int
    packed: int
    largest: int
    layers: int
    width: int
    vocabulary: int
    inner: int
    query: int
    key: int
    heads: int
    key_heads: int
    normed_heads: bool = False
    rank: int = 0
    adapted: int = 0
    adapted_inputs: int = 0
    rounded: int = 0
    rounded_bytes: int = 0
    unpacked: int = 0
    rounded_here: bool = False

    @classmethod
    def of(cls, settings: ModelSettings) -> Shape:
        """From the configuration alone.

        Raises:
            RecipeError: it cannot be used.
        """
        return cls.described(settings, weight_shapes(settings), config_of(settings))

    @classmethod
    def described(cls, settings: ModelSettings, shapes: Mapping[str, tuple[int, ...]], config: Any) -> Shape:
        """
        Args:
            shapes: of the weights, which adapters do not change.
            config: of the model's text part.
        """
        parameters = sum(map(math.prod, shapes.values()))
        linear = {name: of for name, of in shapes.items() if len(of) == 2 and "embed" not in name}
        tied = not any("lm_head" in name for name in shapes)
        packed = [math.prod(of) for of in linear.values()] + ([config.vocab_size * config.hidden_size] if tied else [])
        packs = settings.lora is None and config.model_type in PACKED_FAMILIES
        heads = _of_a_layer(config, "num_attention_heads") or 1
        dim = _of_a_layer(config, "head_dim") or config.hidden_size // heads
        key_heads = _of_a_layer(config, "num_key_value_heads") or heads
        experts = _of_a_layer(config, "num_experts_per_tok")
        inner = _of_a_layer(config, "intermediate_size") or 4 * config.hidden_size
        if experts:
            inner = experts * (_of_a_layer(config, "moe_intermediate_size") or inner)
        adapted = [] if settings.lora is None else adapted_matrices(linear, settings.lora)
        matrices = [of for name, of in linear.items() if "lm_head" not in name] if settings.quantise else []
        layers = int(config.num_hidden_layers)
        return cls(
            parameters,
            parameters if settings.lora is None else settings.lora.rank * sum(sum(of) for of in adapted),
            sum(n for n in packed if n >= PACKED_FROM) if packs else 0,
            max(map(math.prod, shapes.values())),
            layers,
            int(config.hidden_size),
            int(config.vocab_size),
            inner,
            heads * dim,
            key_heads * dim,
            heads,
            key_heads,
            any(".q_norm." in name for name in shapes),
            0 if settings.lora is None else settings.lora.rank,
            len(adapted) // layers,
            sum(width for _, width in adapted) // layers,
            sum(map(math.prod, matrices)),
            sum(rounded_bytes(of, settings.quantise) for of in matrices if settings.quantise),
            max(map(math.prod, matrices), default=0),
            settings.quantise == "int8",
        )


def _of_a_layer(config: Any, name: str) -> int:
    """A number that a configuration has for all layers, or the mean of those of each (Gemma 3n and 4); 0 without."""
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    values = [getattr(layer, name, None) or 0 for layer in layers]
    return round(fmean(fmean(value) if isinstance(value, list | tuple) else value for value in values))


@dataclass(frozen=True)
class Work:
    """What a stage, or an evaluation, computes at once.

    Attributes:
        trees, rows: tasks, and trajectories of each; no rows where nothing is sampled or trained.
        prompt, completion: the largest numbers of tokens.
        micro_batch: tokens per micro-batch; 0 where nothing is trained.
        updates: per pass over a step, between which its trees are divided.
        layout: as ``learner.layout`` has it.
        recomputed: whether activations are computed again in the backward pass.
        half: whether forward and backward are in bfloat16 beside weights that are not.
        sequences: completions drawn at once; 0 where nothing is sampled here.
        packs: whether the engine holds large weights twice.
        kept: tokens whose cache outlives their request, as trees that grow need it.
        frozen, averages: copies of all weights in the model's dtype, and in float32.
        models: trained models.
        wide: whether a whole distribution per token is kept for more than its log-probability.
        beside: bytes that are there all the time: another engine's weights and cache, a teacher.
        eight_bits: whether the optimiser's moments are in 8 bits.
    """

    trees: int
    rows: int
    prompt: int
    completion: int
    micro_batch: int = 0
    updates: int = 1
    layout: str = "auto"
    recomputed: bool = False
    half: bool = False
    sequences: int = 0
    packs: bool = False
    kept: int = 0
    frozen: int = 0
    averages: int = 0
    models: int = 1
    wide: bool = False
    beside: int = 0
    eight_bits: bool = False

    @property
    def length(self) -> int:
        """Tokens of a whole trajectory."""
        return self.prompt + self.completion


def adapted_matrices(linear: Mapping[str, tuple[int, ...]], lora: LoraSettings) -> list[tuple[int, ...]]:
    """Shapes of the matrices that have adapters, each with rank * (out + in) numbers.

    Args:
        linear: shape (out, in) of each matrix but the embedding, by name.
    """
    named = lora.target_modules
    return [
        of
        for name, of in linear.items()
        if ("lm_head" not in name if named == "all-linear" else name.split(".")[-2:-1] and name.split(".")[-2] in named)
    ]


def rounded_bytes(matrix: tuple[int, ...], kind: Kind) -> int:
    """Bytes of a matrix in few bits, with a scale of 32 bits for each row of int8, for each 64 numbers in 4 bits."""
    return math.prod(matrix) + FLOAT * matrix[0] if kind == "int8" else math.prod(matrix) * 9 // 16


def held_weights(shape: Shape, number: int) -> int:
    """Bytes of a model's weights and adapters."""
    adapters = shape.trained * FLOAT if shape.rank else 0
    return (shape.parameters - shape.rounded) * number + shape.rounded_bytes + adapters


def trained_number(shape: Shape, number: int) -> int:
    """Bytes of a trained number: peft holds adapters in float32, whatever the weights are in."""
    return FLOAT if shape.rank else number


def moments(trained: int, number: int, work: Work) -> int:
    """Bytes of AdamW's two moments of each trained number; in 8 bits with a scale of 32 bits for each 256."""
    return trained * 2 + trained // 32 if work.eight_bits else 2 * trained * number


def activations(shape: Shape, tokens: int, number: int, *, half: bool = False) -> int:
    """Bytes that a layer of a decoder keeps for its backward pass.

        tokens * (number * (4 width + 4 inner + 2 query + 2 key) + 4 * 2 width)

    The inputs of two norms, in float32; normalised inputs and outputs of the norms; gate, its activation, up and their
    product; queries, keys, values and what attention returns. With norms of heads, 4 * (query + key) and number *
    (query + key) more.

    Under autocast what norms keep is in float32, and each of five matrices keeps a copy of its input. With adapters the
    norms' weights are frozen, and each adapter keeps its own copy of its input, in the precision that it computes in.
    Counted with ``saved_tensors_hooks`` on Llama and Qwen3, in each precision: within 2 %.

    Args:
        tokens: through the model.
        number: bytes of a number.
        half: whether forward and backward are in bfloat16 beside weights in float32; ``number`` is 2.
    """
    attention, heads = 2 * (shape.query + shape.key), (shape.query + shape.key) if shape.normed_heads else 0
    in_float32, own = 2 * shape.width + heads, 4 * shape.inner + attention
    if not shape.rank:
        own += heads + (5 if half else 4) * shape.width
        in_float32 += 2 * shape.width if half else 0
    elif number == FLOAT:  # adapters take the layers' own inputs
        own += 2 * shape.width + shape.adapted * shape.rank
    else:
        own -= shape.inner  # the product, of which the adapter has a copy
        copies = shape.adapted_inputs + shape.adapted * shape.rank
        own, in_float32 = (own + copies, in_float32) if half else (own, in_float32 + copies)
    return tokens * (own * number + in_float32 * FLOAT)


def through_the_model(work: Work) -> tuple[int, int, bool]:
    """Tokens that the largest micro-batch computes, its rows, and whether what rows share is computed once.

    Rows are taken until their unique tokens exceed the budget; one that is longer goes alone.
    """
    rows = min(-(-work.trees // work.updates) * work.rows, max(1, work.micro_batch // max(1, work.completion)))
    while rows > 1 and unique_tokens(work, rows) > work.micro_batch:
        rows -= max(1, (unique_tokens(work, rows) - work.micro_batch) // max(1, work.length))
    unique, padded = unique_tokens(work, rows), rows * work.length
    tree = work.layout == "tree" or (work.layout == "auto" and 1.1 * unique <= padded)
    return (unique if tree else padded), rows, tree


def unique_tokens(work: Work, rows: int) -> int:
    """Of so many trajectories, the prompt of each task once."""
    return math.ceil(rows / max(1, work.rows)) * work.prompt + rows * work.completion


def backward(shape: Shape, work: Work, number: int) -> dict[str, int]:
    """Bytes of a micro-batch's forward and backward pass, by what they are."""
    tokens, rows, tree = through_the_model(work)
    stream, number = number, 2 if work.half else number
    layer = activations(shape, tokens, number, half=work.half)
    kept = shape.layers * tokens * shape.width * stream + layer if work.recomputed else shape.layers * layer
    if tree:
        # Packed outputs beside padded ones; one additive mask of (query heads per key head * Lq, Lk) for all layers, or
        # of a block of queries.
        kept += (1 if work.recomputed else shape.layers) * tokens * shape.query * number
        mask = rows * (shape.heads // shape.key_heads) * work.completion * work.length
        kept += (mask if mask <= MASK_ELEMENTS else BLOCK_ELEMENTS) * number
    passing = tokens * (3 * shape.inner + 2 * shape.width) * number
    copies = 6 if work.wide else 4
    logits = copies * min(rows * work.completion * shape.vocabulary, LOGIT_ELEMENTS) * FLOAT
    found = {"activations": kept + passing, "logits": logits}
    return found | {"weights in bfloat16": cast_copies(shape, work)} if work.half else found


def cast_copies(shape: Shape, work: Work) -> int:
    """Bytes of the copies of weights that autocast makes: for the backward pass, and of trained ones until the forward
    pass ends. Where layers are computed again, those of frozen weights are one layer's."""
    copied = (shape.parameters - shape.rounded) * 2
    return copied // shape.layers if shape.rank and work.recomputed else copied


def cache(shape: Shape, work: Work, number: int) -> tuple[int, int]:
    """Bytes of the embedded engine's keys and values at the end, and of those that it copies while it grows last.

    Entries and places grow by half, old and new side by side for a moment.
    """
    if not work.sequences:
        return 0, 0
    shared = work.prompt * (work.rows - 1) >= 7 * 48
    own, longest = (1, work.completion) if shared else (work.prompt, work.length)
    entries = grown(min(work.trees, work.sequences), work.sequences, 8, 1)[-1]
    places = grown(own, longest, 1, 32)
    token = 2 * shape.layers * shape.key * number
    last = entries * places[-1] * token
    before = entries * places[-2] * token if len(places) > 1 else 0
    prompts = min(work.trees, work.sequences) * work.prompt * token if shared else 0
    return last + prompts + work.kept * 3 // 2 * token, before


def grown(first: int, last: int, least: int, unit: int) -> list[int]:
    """Sizes of what grows by half whenever it is too small, from one number to another."""
    sizes = [-(-max(first, least) // unit) * unit]
    while sizes[-1] < last:
        sizes.append(-(-max(sizes[-1] + 1, sizes[-1] * 3 // 2) // unit) * unit)
    return sizes


def drawing(shape: Shape, work: Work, number: int) -> int:
    """Bytes of a decoding step: logits, and three copies that a draw makes of them; or of computing the prompts."""
    steps = 4 * work.sequences * shape.vocabulary * FLOAT
    prompts = min(work.trees * work.prompt, 16_384) * (3 * shape.inner + 4 * shape.width) * number
    return max(steps, prompts) if work.sequences else 0


Phase = Literal["load", "evaluate", "sample", "train", "save"]
Parts = Mapping[str, int]


def phases(shape: Shape, work: Work, evaluated: Work, number: int, *, libraries: int, card: bool) -> dict[Phase, Parts]:
    """Bytes in each phase of a run, by what they are, once the first update was made.

    Args:
        work: of a stage.
        evaluated: of its evaluations.
        number: bytes of a number of the weights.
        libraries: resident before a model is loaded; on a card, what its driver takes.
        card: whether it is the memory of a card, where nothing is packed and nothing is written.
    """
    models = work.models if work.micro_batch else 1
    trained = models * shape.trained if work.micro_batch else 0
    unpacked = {"unpacked weight": shape.unpacked * (FLOAT + number)}
    updated = trained_number(shape, number)
    always = {
        "libraries": libraries,
        "weights": models * held_weights(shape, number),
        "frozen models": shape.parameters * (work.frozen * number + work.averages * FLOAT) + work.beside,
        "gradients": trained * updated,
        "optimiser": moments(trained, updated, work),
    }
    later = {} if card else {"libraries": libraries + LATER_BYTES}
    packs = {"packed weights": models * shape.packed * number if not card and work.packs else 0}
    held, growing = cache(shape, work, number)
    held_by_evaluation, growing_there = cache(shape, evaluated, number)
    passes = backward(shape, work, number) if work.micro_batch and work.rows else {}
    pieces = {
        "activations": max(shape.inner, shape.width) * through_the_model(work)[0] * number,
        "logits": passes.get("logits", 0) // 4,
        "weights in bfloat16": shape.largest * 2,
    }
    small = () if card else [name for name in passes if pieces[name] < HEAP_PIECE]
    waste = HEAP_WASTE_OF_ADAPTERS if shape.rank else HEAP_WASTE
    passes |= {name: round(passes[name] * waste) for name in small}
    held_back = sum(passes[name] for name in small)

    def beside(**parts: int) -> dict[str, int]:
        """What freed memory that was not given back does not cover is new."""
        return {name.replace("_", " "): n for name, n in parts.items()} | {
            "freed, held": max(0, held_back - sum(parts.values()))
        }

    found: dict[Phase, Parts] = {"load": {name: always[name] for name in ("libraries", "weights")}}
    if shape.rounded_here and not card:
        found["load"] = {"libraries": libraries, "weights": shape.parameters * number}
    if evaluated.rows:
        other = {"cache": held} | beside(
            cache_of_evaluation=held_by_evaluation + growing_there, logits=drawing(shape, evaluated, number)
        )
        packed = {"packed weights": models * shape.packed * number if not card and evaluated.packs else 0}
        found["evaluate"] = always | later | packed | other
    if work.sequences:
        drawn = beside(growing_cache=growing, logits=drawing(shape, work, number))
        found["sample"] = always | later | packs | {"cache": held} | drawn | unpacked
    if passes:
        found["train"] = always | later | packs | {"cache": held} | passes | unpacked
    if not card:
        state = trained * updated + moments(trained, updated, work) + shape.parameters * work.frozen * number
        written = 2 * min(state, max(SHARD_BYTES, shape.largest * number))
        merged = shape.parameters * number if shape.rank else 0
        found["save"] = (
            always | later | {"cache": held, "freed, held": held_back, "being written": max(written, merged)}
        )
    return {phase: {name: count for name, count in parts.items() if count} for phase, parts in found.items()}


@dataclass(frozen=True)
class Sizes:
    """What a run is told to take, and what there is.

    Attributes:
        memory: bytes by phase and part, of the stage that takes most.
        of: whose memory it is, in words.
        free: bytes of it that are free now, or that a card has.
        disk: bytes by what is written.
        disk_free: bytes.
        mends: key=value -> peak bytes with it, of what would take less.
        certain: bytes without which no step can be done, whatever lengths come out.
        uncounted: components whose own models are not in these sums.
    """

    memory: Mapping[Phase, Parts]
    of: str
    free: int
    disk: Mapping[str, int]
    disk_free: int
    mends: Mapping[str, int] = field(default_factory=dict)
    certain: int = 0
    uncounted: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        return max(sum(parts.values()) for parts in self.memory.values())

    @property
    def peak_phase(self) -> Phase:
        return max(self.memory, key=lambda phase: sum(self.memory[phase].values()))

    @property
    def fits(self) -> bool:
        return self.peak <= self.free

    @property
    def mend(self) -> str:
        """What to change, in words: the first key that makes it fit, or that takes most away; empty where none does."""
        fitting = [key for key, peak in self.mends.items() if peak <= self.free]
        if fitting:
            return f"{fitting[0]} ({in_gib(self.mends[fitting[0]])})"
        if not self.mends or min(self.mends.values()) >= self.peak:
            return ""
        best = min(self.mends, key=lambda key: self.mends[key])
        return f"{best} ({in_gib(self.mends[best])}, which does not fit either)"

    def require_fit(self) -> None:
        """Raise RecipeError where even what no length changes does not fit: the system would kill the run later."""
        if self.certain > self.free:
            advice = self.mend or "model.path of a smaller model"
            raise RecipeError(
                f"model: got one whose training takes {in_gib(self.certain)} of memory for weights, gradients and "
                f"optimiser alone, and {self.of} has {in_gib(self.free)} free; allowed: {advice}"
            )


def in_gib(count: int) -> str:
    """Bytes of memory in words, in powers of two as memory is sold."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / MIB:.0f} MiB"


def told(recipe: Recipe, *, prompt: int, demonstration: int, evaluated: int, card: str | None = None) -> Sizes:
    """What a run of this recipe will take at most.

    Args:
        prompt: tokens of the longest prompt that was looked at.
        demonstration: tokens of the longest completion that was looked at, where completions are given.
        evaluated: held-out tasks that are evaluated.
        card: name of a card that is not here (:data:`CARDS`).
    Raises:
        RecipeError: an unknown card.
    """
    if card is not None and card not in CARDS:
        raise RecipeError(f"--on: got {card!r}; allowed: {', '.join(CARDS)}")
    described = weight_shapes(recipe.model), config_of(recipe.model)
    shape = Shape.described(recipe.model, *described)
    adapted = Shape.described(recipe.model.model_copy(update={"lora": LoraSettings()}), *described)
    on_card = card is not None or (recipe.model.device != "cpu" and torch.cuda.is_available())
    number = torch.finfo(getattr(torch, recipe.model.dtype)).bits // 8
    libraries = CONTEXT_BYTES if on_card else resident()
    works = list(_works(recipe, shape, prompt, demonstration, on_card))
    evaluation = _evaluation(recipe, prompt, evaluated)

    def most(shape: Shape, works: list[Work]) -> dict[Phase, Parts]:
        of_stages = [phases(shape, w, evaluation, number, libraries=libraries, card=on_card) for w in works]
        return max(of_stages, key=lambda found: max(sum(parts.values()) for parts in found.values()))

    memory = most(shape, works)
    changed = _mends(shape, adapted, works)
    peaks = {key: max(sum(parts.values()) for parts in most(*with_it).values()) for key, with_it in changed.items()}
    if card is not None:
        free, of = CARDS[card] * MIB, f"an {card}" if card[0] in "ahl" else f"a {card}"
    elif on_card:
        free, of = torch.cuda.mem_get_info()[0], "the GPU"
    else:
        free, of = free_memory() + libraries, "this machine"
    sure = ("libraries", "weights", "frozen models", "gradients", "optimiser")
    parts = next(iter(memory.values())) if "train" not in memory else memory["train"]
    place = next((p for p in Path(recipe.output).absolute().parents if p.exists()), Path("/"))
    return Sizes(
        memory,
        of,
        free,
        _disk(recipe, shape, number, works),
        disk_usage(place).free,
        peaks,
        sum(parts.get(name, 0) for name in sure),
        tuple(_uncounted(recipe)),
    )


LOOKED_AT = 16
"""Tasks whose prompts, and demonstrations where they have any, are measured for what a run will take."""


def sizes_of(ready: Ready, card: str | None = None) -> Sizes:
    """What a run will take, by the longest of the first prompts and demonstrations."""
    recipe, source, tokenizer = ready.files, ready.source, ready.tokenizer
    renderer = Renderer(tokenizer)
    of = recipe.stages[0].composition()
    given = of.data is not None and of.data.given
    tasks = [of.data.first_task()] if given and of.data is not None else first_tasks(source, LOOKED_AT)
    with allow_code():
        tools = () if of.rollout is None or given else of.rollout.tools
    prompt = max(len(renderer.render(task.messages, tools).tokens) for task in tasks)
    longest = _longest(recipe, source, tokenizer)
    return told(recipe, prompt=prompt, demonstration=longest, evaluated=ready.evaluated, card=card)


def require_fit(ready: Ready) -> None:
    """Raise RecipeError where a run's weights, gradients and optimiser alone take more memory than is free."""
    sizes_of(ready).require_fit()


def _longest(recipe: Recipe, source: TaskSource, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of the longest of the first demonstrations; of completions in a file, what the stage allows."""
    longest = 1
    for stage in recipe.stages:
        if isinstance(stage, SupervisedStage):
            tasks = stage.source(source, recipe.seed)
            episodes = [episode_of(tasks, task) for task in first_tasks(tasks, LOOKED_AT)]
            texts = ["".join(map("".join, episode)) for episode in episodes]
            lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 1 for text in texts]
            longest = max([longest, *(min(n, stage.max_completion_tokens) for n in lengths)])
        elif (data := stage.composition().data) is not None and data.given:
            longest = max(longest, stage.sampling.max_completion_tokens)
    return longest


def _works(recipe: Recipe, shape: Shape, prompt: int, demonstration: int, on_card: bool) -> Iterator[Work]:
    for stage in recipe.stages:
        of = stage.composition()
        learner: Any = stage.learner
        samples = of.rollout is not None and (of.data is None or not of.data.given)
        rows = (of.trajectories or 1) if samples else 2 if isinstance(stage, Offline) else 1
        completion = stage.sampling.max_completion_tokens if samples else demonstration
        needs = _needs(stage, of)
        trees = getattr(stage, "tasks_per_step", 1)
        embedded = of.engine is None or of.engine.shares_weights
        limit = getattr(stage.engine, "max_sequences", 512)
        continues = samples and of.rollout is not None and of.rollout.continues
        kept = 0 if not continues else min(getattr(stage.engine, "keep_tokens", 0), trees * rows * completion)
        beside = 0
        if samples and not (embedded or stage.engine.elsewhere):
            engine: Any = stage.engine
            half = engine.dtype in ("bfloat16", "float16") or recipe.model.dtype != "float32"
            beside = int(engine.cache_gib * 2**30) + shape.parameters * (2 if half else FLOAT)
        if of.teacher is not None:
            beside += sum(map(math.prod, weight_shapes(of.teacher.model("cpu")).values())) * FLOAT
        roles = of.roles
        yield Work(
            trees,
            rows,
            prompt,
            completion,
            micro_batch=int(getattr(learner, "micro_batch_tokens", 4096)),
            updates=int(getattr(learner, "updates_per_step", 1)),
            layout=str(getattr(learner, "layout", "auto")),
            recomputed=bool(getattr(learner, "gradient_checkpointing", False)),
            half=learner.precision is not None and recipe.model.dtype == "float32",
            sequences=min(limit, trees * rows) if samples and embedded else 0,
            packs=embedded and not on_card and bool(getattr(stage.engine, "pack_weights", False)),
            kept=kept,
            frozen=int(
                bool(needs & {"reference", "reference_logprob"}) and (not shape.rank or of.reference is not None)
            ),
            averages=int(of.average is not None and not shape.rank),
            models=1 if roles is None else len(roles.models),
            wide="entropy" in needs or "old_entropy" in needs,
            beside=beside,
            eight_bits=getattr(learner, "optimizer", "adamw") == "adamw-8bit",
        )


def _needs(stage: StageSettings, of: Composition) -> frozenset[str]:
    needed = frozenset[str]().union(*(part.needed for part in of.components()))
    return needed | Method.of(stage).needs if isinstance(stage, (Online, Offline)) else needed


def _evaluation(recipe: Recipe, prompt: int, evaluated: int) -> Work:
    engine = recipe.evaluation_engine
    if not evaluated or not engine.shares_weights:
        return Work(0, 0, prompt, 0)
    rows = recipe.evaluate.samples
    most = min(int(getattr(engine, "max_sequences", 512)), evaluated * rows)
    length = recipe.evaluation_sampling.max_completion_tokens
    return Work(evaluated, rows, prompt, length, sequences=most, packs=bool(getattr(engine, "pack_weights", False)))


def _mends(shape: Shape, adapted: Shape, works: list[Work]) -> dict[str, tuple[Shape, list[Work]]]:
    """Keys that take memory away, with what they change, the least costly first.

    Args:
        adapted: the model with adapters.
    """
    found: dict[str, tuple[Shape, list[Work]]] = {}
    half = max((work.micro_batch for work in works), default=0) // 4
    longest = max((work.length for work in works), default=0)
    if half >= longest:
        found[f"learner.micro_batch_tokens={half}"] = shape, [replace(w, micro_batch=half) for w in works]
    if not all(work.recomputed for work in works):
        found["learner.gradient_checkpointing=true"] = shape, [replace(w, recomputed=True) for w in works]
    sequences = max((work.sequences for work in works), default=0)
    if sequences >= 16:
        key = f"engine.max_sequences={sequences // 4}"
        found[key] = shape, [replace(w, sequences=min(w.sequences, sequences // 4)) for w in works]
    if not shape.rank:
        found["model.lora=true"] = adapted, [replace(w, frozen=0, averages=0, packs=False) for w in works]
        both = [
            replace(w, frozen=0, averages=0, packs=False, recomputed=True, micro_batch=max(half, longest))
            for w in works
        ]
        micro = f"learner.micro_batch_tokens={max(half, longest)}"
        found[f"model.lora=true learner.gradient_checkpointing=true {micro}"] = adapted, both
    return found


def _disk(recipe: Recipe, shape: Shape, number: int, works: list[Work]) -> dict[str, int]:
    """Bytes of a finished run's folder, by what they are."""
    updated = trained_number(shape, number)
    saved = shape.parameters * number + (shape.trained * updated if shape.rank else 0)
    models = {"model": saved}
    state = max(
        (
            w.models * shape.trained * updated
            + moments(w.models * shape.trained, updated, w)
            + shape.parameters * (w.frozen * number + w.averages * FLOAT)
            for w in works
        ),
        default=0,
    )
    written = sum(
        _checkpoints(recipe.checkpoint_every, stage.steps, first=n > 0) for n, stage in enumerate(recipe.stages)
    )
    models["checkpoints"] = min(recipe.keep_checkpoints, written) * state
    if recipe.evaluate.save_best:
        models["best"] = saved
    if recipe.keep_stages:
        models["models of stages"] = (len(recipe.stages) - 1) * saved
    if recipe.keep is not None:
        each = (
            shape.trained * updated
            if recipe.keep.models == "adapter"
            else saved
            if recipe.keep.dtype == "model"
            else saved * torch.finfo(getattr(torch, recipe.keep.dtype)).bits // 8 // number
        )
        models["kept models"] = sum((stage.steps - 1) // recipe.keep.every for stage in recipe.stages) * each
    models["rollouts"] = sum(
        len(range(recipe.rollouts_every, stage.steps + 1, recipe.rollouts_every))
        * min(w.trees * w.rows, MOST_TRAJECTORIES)
        * (TABLE_ROW + TABLE_TOKEN * w.completion)
        for stage, w in zip(recipe.stages, works, strict=True)
        if w.sequences
    )
    if recipe.trees_every:
        models["trees"] = sum(
            -(-stage.steps // recipe.trees_every) * w.trees * w.rows * (TREE_ROW + TREE_TOKEN * w.completion)
            for stage, w in zip(recipe.stages, works, strict=True)
        )
    steps = sum(stage.steps for stage in recipe.stages)
    models["metrics and report"] = REPORT + steps * STEP
    return {name: count for name, count in models.items() if count}


TABLE_ROW, TABLE_TOKEN = 150, 6
TREE_ROW, TREE_TOKEN = 150, 14
"""Bytes of a trajectory, and of a token of it, in the tables of rollouts and in trees, compressed."""
REPORT, STEP = 90_000, 2_500
"""Bytes of a run's report, and of a step in metrics.jsonl and TensorBoard's file."""


def _checkpoints(every: int, steps: int, *, first: bool) -> int:
    """Checkpoints by the number of steps, of a stage that may begin with one."""
    return 0 if not every else (steps - 1) // every + first


def _uncounted(recipe: Recipe) -> Iterator[str]:
    """Parts with models of their own."""
    for number, stage in enumerate(recipe.stages):
        if (value := stage.composition().value) is not None and value.own_model:
            yield f"the model of value {value.kind}"
        if (workers := getattr(stage.composition().runtime, "workers", 0)) > 0:
            where = f"stages.{number}." if len(recipe.stages) > 1 else ""
            yield f"{where}runtime.workers={workers}, each with the model"
    if recipe.evaluate.n and recipe.evaluate.workers > 1:
        yield f"evaluate.workers={recipe.evaluate.workers}, each with the model"
