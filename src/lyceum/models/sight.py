"""How a model that sees is run over token trees: its text model, with the features of pictures among the embeddings.

A family is known by its parts and not by its name: a text model inside, ``get_image_features``, and, where the text
model takes three rows of positions (M-RoPE), ``get_rope_index``. Whether that is all there is to it, the trial at load
time shows (``models/picture_trial.py``).

Positions. A text model with one row of positions counts every token. With three rows, a picture's tokens stand in a
grid of t, h and w, and the text after it goes on behind the largest of these, which is less than the number of its
tokens. So for each token

    rope(t) = depth(t) - shift(t)                                  of text, in all three rows
    rope(t) = depth(t) - place(t) - shift(t) + grid[:, place(t)]   of a picture's token

    shift(t) = sum over the pictures that end above t of (tokens - positions)
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

from jaxtyping import Float, Int

from lyceum.core.forest import Forest
from lyceum.core.pictures import (
    COMPRESSED,
    FIRST,
    FULL,
    MOST_PLACES,
    PLACE_BITS,
    at_rate,
    id_and_place,
    is_picture,
    rate_of,
)
from lyceum.models.picture_tokens import PictureTokens, Seen, one_by_one, pictures_of
from lyceum.models.rates import rates_of
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers
from lyceum.utils.seeds import counter_seed

TEXT_MODELS = ("language_model", "text_model")
"""Where models that see keep their text model."""
ROUTED_HELD = 1024
"""Pictures that were routed and not yet embedded whose features are kept; beyond, one is encoded again."""


class Features(NamedTuple):
    """A picture as the text model takes it.

    Attributes:
        embedding: in the place of each of its placeholders' embeddings.
        levels: added to the hidden states after the first layers, for models that do so (DeepStack).
    """

    embedding: Float[Tensor, "n width"]
    levels: tuple[Float[Tensor, "n width"], ...] = ()


class FeatureSource(Protocol):
    """Features of pictures under the current weights, computed where they are not there yet."""

    def of(self, ids: Sequence[int]) -> list[Features]: ...


class Grid(NamedTuple):
    """Positions of a picture's tokens from its first one on, and how many positions it takes in all."""

    position: Int[Tensor, "3 n"]
    takes: int


def text_model_of(causal: Any) -> nn.Module | None:
    """The text model inside a model that sees; None where there is no other than the model itself."""
    inner = getattr(causal, str(getattr(causal, "base_model_prefix", "")), None)
    if inner is None or not hasattr(inner, "get_image_features"):
        return None
    return next((getattr(inner, name) for name in TEXT_MODELS if hasattr(inner, name)), None)


RateName = Literal["full", "compressed", "random", "routed"]


def give_rate(policy: Any, rate: RateName) -> None:
    """Let a policy's prompts show pictures at this rate; ``random`` is by the picture, each rate as often."""
    sight: Sight = policy.sight
    sight.pictures.rates = {
        "full": one_by_one(lambda id: FULL),
        "compressed": one_by_one(lambda id: COMPRESSED),
        "random": one_by_one(lambda id: counter_seed("rate", at_rate(id, FULL)) % 2),
        "routed": sight.route,
    }[rate]


def two_way(inner: Any) -> bool:
    """Whether a model is told which tokens are a picture's, since these see each other whatever their order."""
    return "token_type_ids" in inspect.signature(inner.forward).parameters


def parts_of(causal: Any) -> dict[str, list[nn.Parameter]] | None:
    """The weights of a model that sees: its vision tower's, the projector's, the text model's; None for any other.

    The projector is what is neither of the two others, and in a tower that merges patches what does so.
    """
    text = text_model_of(causal)
    if text is None:
        return None
    inner = getattr(causal, causal.base_model_prefix)
    towers = [each for each in inner.children() if isinstance(each, transformers.PreTrainedModel) and each is not text]
    merging = [
        p for tower in towers for name, each in tower.named_children() if "merger" in name for p in each.parameters()
    ]
    of = {id(p): "vision" for tower in towers for p in tower.parameters()} | {id(p): "projector" for p in merging}
    of |= {id(p): "language" for p in (*text.parameters(), *causal.get_output_embeddings().parameters())}
    found: dict[str, list[nn.Parameter]] = {"vision": [], "projector": [], "language": []}
    for weight in causal.parameters():
        found[of.get(id(weight), "projector")].append(weight)
    return found


class Sight:
    """In the place of a text model's body: token ids, some of them pictures', to hidden states.

    Args:
        causal: a ``*ForConditionalGeneration``.
        text: its text model.
        pictures: its processor, which has read the pictures.
    """

    def __init__(self, causal: transformers.PreTrainedModel, text: nn.Module, pictures: PictureTokens) -> None:
        self.inner = cast(Any, getattr(causal, causal.base_model_prefix))
        self.text, self.pictures = text, pictures
        self.config = cast(Any, text).config
        self.embed = cast(nn.Module, causal.get_input_embeddings())
        self.rope = hasattr(self.inner, "get_rope_index")
        """Whether positions have three rows."""
        self.two_way = two_way(self.inner)
        """Whether a picture's tokens see those behind them."""
        self.takes = taken_by(self.inner)
        """Which inputs of a picture its vision tower takes."""
        self._grids: dict[tuple[int, ...], Grid] = {}
        self.encoded = self.trained = self.encoded_apart = 0
        """Pictures that went through the vision tower: all; since they were counted, those in the learner, and those
        in a process of an engine's own."""
        self.rates = rates_of(causal)
        """The second rate of its pictures; None where there is none."""
        self.at_once = 32
        """Maximum pictures that go through the vision tower together to be routed: the engine's ``encoder.at_once``."""
        self._routed: dict[int, int] = {}
        self._held: OrderedDict[int, Features] = OrderedDict()  # of pictures that were routed and not yet embedded

    @classmethod
    def of(cls, causal: transformers.PreTrainedModel, tokenizer: Any) -> Sight | None:
        """The sight of a model that sees, whose tokenizer came with its processor of pictures; None for any other."""
        text = text_model_of(causal)
        pictures = pictures_of(tokenizer)
        return None if text is None or pictures is None else cls(causal, text, pictures)

    def __call__(
        self,
        *,
        input_ids: Int[Tensor, "1 T"],
        position_ids: Int[Tensor, "1 T"],
        shift: Int[Tensor, " T"] | None = None,
        features: FeatureSource | None = None,
        **how: Any,
    ) -> Any:
        """The text model's output.

        Args:
            position_ids: number of tokens above each.
            shift: of each token, see above; None where there is no picture, or positions have one row.
            features: of pictures, under the same weights. None computes all that are there, with gradient.
        """
        tokens = input_ids.squeeze(0)
        seen = tokens >= FIRST
        embedded = self.embed(tokens.masked_fill(seen, 0))
        position: Tensor = position_ids
        if self.rope:
            position = (position_ids if shift is None else position_ids - shift).expand(3, -1)
        if bool(seen.any()):
            if self.rope and shift is None:
                raise NotImplementedError("positions of text after a picture are not known here")
            ids, place = _named(tokens[seen])
            distinct, which = torch.unique(ids, return_inverse=True)
            found = self._trained(distinct.tolist()) if features is None else features.of(distinct.tolist())
            start = torch.tensor([0, *(len(each.embedding) for each in found)]).cumsum(0)[:-1].to(which.device)
            row = start[which] + place
            embedded = embedded.index_put(
                (seen,), torch.cat([each.embedding for each in found])[row].to(embedded.dtype)
            )
            if levels := list(zip(*(each.levels for each in found), strict=True)):
                how["visual_pos_masks"] = seen.unsqueeze(0)
                how["deepstack_visual_embeds"] = [torch.cat(level)[row] for level in levels]
            if self.two_way:
                of_places = torch.cat([self._ahead(id) for id in distinct.tolist()]).to(row.device)
                ahead = torch.zeros_like(tokens)
                ahead[seen] = of_places[row]
                how["lyceum_plan"].two_way(ahead)
            if self.rope:
                grids = [self.grid(self.pictures.seen(id)).position for id in distinct.tolist()]
                own = torch.cat(grids, 1).to(position.device)[:, row]
                position = position.clone()
                position[:, seen] += own - place
        position = position.unsqueeze(1) if self.rope else position
        return self.text(inputs_embeds=embedded.unsqueeze(0), position_ids=position, **how)

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.inner.parameters()

    # Features ------------------------------------------------------------------------------------------------------

    def _trained(self, ids: Sequence[int]) -> list[Features]:
        self.trained += len(ids)
        return self.encode(ids)

    def encode(self, ids: Sequence[int]) -> list[Features]:
        """Features of different pictures that some prompt has shown; those of one shape are computed together."""
        found: dict[int, Features] = {}
        if not torch.is_grad_enabled():
            found = {id: self._held.pop(id) for id in ids if id in self._held}
        new = [self.pictures.seen(id) for id in ids if id not in found]
        for group in inputs_alike(new, self.takes):
            found |= zip((seen.picture.id for seen in group), self._encode(group), strict=True)
        return [found[id] for id in ids]

    def _encode(self, group: Sequence[Seen]) -> list[Features]:
        if self.rates is not None:
            return self._at_rate(self.patches([seen.picture.id for seen in group]), group)
        self.encoded += len(group)
        return encoded(self.inner, [seen.inputs for seen in group], [seen.places for seen in group])

    def metrics(self, forest: Forest) -> dict[str, float]:
        """Pictures of a step's forest, and how often the learner encoded one: once for each micro-batch that has it;
        where there are two rates, how many have each."""
        distinct = torch.unique(forest.token[forest.token >= FIRST] >> PLACE_BITS)
        found = {
            "pictures/step": float(len(distinct)),
            "pictures/encoded_in_training": float(self.trained),
            "pictures/encoded_apart": float(self.encoded_apart),
        }
        if self.rates is not None:
            compressed = sum(rate_of(id) == COMPRESSED for id in distinct.tolist())
            found |= {"pictures/compressed": float(compressed), "pictures/full": float(len(distinct) - compressed)}
        self.trained = self.encoded_apart = 0
        return found

    def _ahead(self, id: int) -> Int[Tensor, " n"]:
        """How many of a picture's tokens follow each in the same run of them."""
        return torch.cat([torch.arange(length - 1, -1, -1) for length in self.pictures.runs(id)])

    # Rates ---------------------------------------------------------------------------------------------------------

    def patches(self, ids: Sequence[int]) -> list[Tensor]:
        """What the vision tower makes of pictures, whatever their rates."""
        assert self.rates is not None
        device = next(iter(self.parameters())).device
        tiles = [self.pictures.seen(id).inputs["pixel_values"] for id in ids]
        self.encoded += len(ids)
        return list(self.rates.patches(torch.cat(tiles).to(device)).split([len(each) for each in tiles]))

    def _at_rate(self, patches: Sequence[Tensor], group: Sequence[Seen]) -> list[Features]:
        """Features of pictures of one rate, of what the vision tower makes of each."""
        assert self.rates is not None
        of_all = self.rates.features(torch.cat(list(patches)), rate_of(group[0].picture.id))
        return [Features(each) for each in of_all.split([seen.places for seen in group])]

    def route(self, ids: Sequence[int]) -> list[int]:
        """The rates that the router chooses for pictures, under the current weights.

        Those not routed yet go through the vision tower ``at_once`` together, and their features are held for who
        embeds them. A picture's rate does not depend on those beside it: where rounding could decide, the tower sees
        the picture again, alone.
        """
        new = [id for id in dict.fromkeys(at_rate(id, FULL) for id in ids) if id not in self._routed]
        with torch.no_grad():
            for first in range(0, len(new), self.at_once):
                self._route(new[first : first + self.at_once])
        return [self._routed[at_rate(id, FULL)] for id in ids]

    def _route(self, ids: Sequence[int]) -> None:
        assert self.rates is not None
        patches = self.patches(ids)
        logits = self.rates.logits(patches)
        # Far more than what the order of a sum changes, and few pictures: 3e-4 in float32, 0.09 in bfloat16.
        near = torch.finfo(logits.dtype).eps ** 0.5
        rates: dict[int, list[int]] = {FULL: [], COMPRESSED: []}
        for n, logit in enumerate(logits.tolist()):
            if abs(logit) <= near and len(ids) > 1:
                [patches[n]] = self.patches(ids[n : n + 1])
                logit = float(self.rates.logit(patches[n]))
            rates[FULL if logit > 0 else COMPRESSED].append(n)
        for rate, chosen in rates.items():
            self._routed |= dict.fromkeys((ids[n] for n in chosen), rate)
            if chosen:
                group = [self.pictures.seen(at_rate(ids[n], rate)) for n in chosen]
                features = self._at_rate([patches[n] for n in chosen], group)
                self._held |= zip((seen.picture.id for seen in group), features, strict=True)
        while len(self._held) > ROUTED_HELD:
            self._held.popitem(last=False)

    def forget(self) -> None:
        """Drop what was computed from weights that have changed."""
        self._routed.clear()
        self._held.clear()

    # Positions -----------------------------------------------------------------------------------------------------

    def grid(self, seen: Seen) -> Grid:
        """Where a picture's tokens stand, as the model's own function says of a prompt of it alone."""
        size = (*seen.inputs["image_grid_thw"].flatten().tolist(), seen.places)
        if size not in self._grids:
            ids = torch.full((1, seen.places), self.pictures.placeholder_id)
            given = {"mm_token_type_ids": torch.ones_like(ids), "image_grid_thw": seen.inputs["image_grid_thw"].cpu()}
            position, _ = self.inner.get_rope_index(input_ids=ids, **given)
            own = position.reshape(-1, seen.places)[-3:].long()
            self._grids[size] = Grid(own, int(own.max()) + 1)
        return self._grids[size]

    def shift_after(self, path: Sequence[int]) -> int:
        """The shift of what follows a path of whole pictures; 0 where positions have one row."""
        if not self.rope:
            return 0
        begun = [id_and_place(token)[0] for token in path if is_picture(token) and not id_and_place(token)[1]]
        return sum(self._saved(id) for id in begun)

    def shifts(self, path: Sequence[int]) -> list[int]:
        """The shift of each token of a path."""
        out: list[int] = []
        shift = 0
        for token in path:
            out.append(shift)
            if self.rope and is_picture(token):
                id, place = id_and_place(token)
                shift += self._saved(id) if place + 1 == self.pictures.seen(id).places else 0
        return out

    def rows_shift(self, rows: Int[Tensor, "R L"]) -> Int[Tensor, "R L"] | None:
        """The shift of each token of whole rows; None where positions have one row."""
        if not self.rope:
            return None
        ends = torch.zeros_like(rows)
        seen = rows >= FIRST
        ids, place = _named(rows[seen])
        known = {id: self.pictures.seen(id) for id in set(ids.tolist())}
        last = [known[id].places == at + 1 for id, at in zip(ids.tolist(), place.tolist(), strict=True)]
        saved = [self._saved(id) if end else 0 for id, end in zip(ids.tolist(), last, strict=True)]
        ends[seen] = torch.tensor(saved, dtype=rows.dtype, device=rows.device)
        return ends.cumsum(1) - ends

    def forest_shift(self, forest: Forest) -> Int[Tensor, " T"] | None:
        """The shift of each unique token of a forest; None where positions have one row."""
        if not self.rope:
            return None
        rows = forest.rows()
        of_rows = self.rows_shift(rows.gather(forest.token))
        assert of_rows is not None
        shift = torch.zeros(forest.n_tokens, dtype=torch.long)
        shift[rows.index[rows.present]] = of_rows[rows.present]
        return shift

    def _saved(self, id: int) -> int:
        seen = self.pictures.seen(id)
        return seen.places - self.grid(seen).takes


def _named(tokens: Int[Tensor, " n"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """The picture of each picture token, and the place in it."""
    return (tokens ^ FIRST) >> PLACE_BITS, tokens & MOST_PLACES - 1


def taken_by(inner: Any) -> frozenset[str]:
    """Names of the inputs of a picture that a model's vision tower takes."""
    return frozenset(inspect.signature(inner.get_image_features).parameters)


def encoded(inner: Any, inputs: Sequence[Mapping[str, Tensor]], places: Sequence[int]) -> list[Features]:
    """Features of pictures whose inputs have one shape, by the model's own function.

    Args:
        inner: the model that sees; its text model is not asked.
        places: how many tokens each takes.
    """
    device = next(inner.parameters()).device
    names = [name for name in inputs[0] if name in taken_by(inner)]
    joined = {name: torch.cat([each[name] for each in inputs]).to(device) for name in names}
    out = inner.get_image_features(**joined, return_dict=True)
    flat = _flat(out.pooler_output).split(list(places))
    levels = [_flat(level).split(list(places)) for level in getattr(out, "deepstack_features", None) or ()]
    return [Features(flat[n], tuple(level[n] for level in levels)) for n in range(len(places))]


def inputs_alike(all_seen: Sequence[Seen], names: Iterable[str]) -> Iterable[list[Seen]]:
    """Pictures by the shapes of their inputs, in order."""
    groups: dict[Any, list[Seen]] = {}
    for seen in all_seen:
        shapes = tuple((name, tuple(x.shape)) for name, x in sorted(seen.inputs.items()) if name in names)
        groups.setdefault((shapes, seen.places, rate_of(seen.picture.id)), []).append(seen)
    return groups.values()


def _flat(features: Any) -> Float[Tensor, "n width"]:
    """Features of several pictures, however a model returns them, one token after another."""
    if isinstance(features, list | tuple):
        return torch.cat([each.reshape(-1, each.shape[-1]) for each in features])
    return features.reshape(-1, features.shape[-1])
