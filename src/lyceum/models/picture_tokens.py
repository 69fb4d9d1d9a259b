"""Which tokens a picture becomes, by the processor that comes with a model that sees.

transformers' processors say how many placeholders a picture takes and what stands around them. Of each only that, and
its Pillow image processor, is used: the rest of some needs torchvision or other packages, for videos. The placeholders
are then named after their picture (``core/pictures.py``).

It belongs to a tokenizer (``pictures_of``): whoever renders messages has that.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

from lyceum.core.notes import Note
from lyceum.core.pictures import (
    FULL,
    MOST_PLACES,
    Picture,
    at_rate,
    id_and_place,
    is_picture,
    picture_of,
    picture_token,
    rate_of,
)
from lyceum.core.tree import Tree
from lyceum.core.types import Message
from lyceum.core.user_files import user_file
from lyceum.models.see import Pixels, data_uri, read_picture
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch, transformers
from lyceum.utils.library_messages import quiet
from lyceum.utils.messages import picture_parts
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

PATCHES_HELD = 256
"""Pictures whose pixels are kept as the model takes them; others are read again when they are needed."""
SOURCES_BYTES = 1 << 28
"""Of the texts that say where pictures are, beyond which those not used for longest are forgotten."""
MOST_PICTURES = 256
"""Pictures in one prompt."""
SHARE = 4
"""How many times fewer placeholders a compressed picture takes."""


Rates = Callable[[Sequence[int]], Sequence[int]]
"""At which rates prompts show pictures, of their ids at the full one."""


def one_by_one(rate: Callable[[int], int]) -> Rates:
    """Rates that depend on each picture alone."""
    return lambda ids: [rate(id) for id in ids]


@dataclass(frozen=True)
class Seen:
    """A picture as a model takes it.

    Attributes:
        inputs: of its vision tower, by the names of its arguments; one picture each.
        text: what stands for it in a prompt: placeholders, and what is around them.
        places: how many placeholders these are.
    """

    picture: Picture
    inputs: Mapping[str, Tensor]
    text: str
    places: int


class PictureTokens:
    """A model's processor of pictures, and where the pictures are that prompts have shown.

    Args:
        processor: a processor of transformers, of which only the part for images has to work.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.placeholder = str(processor.image_token)
        tokenizer = processor.tokenizer
        self.place = str(tokenizer.image_token if hasattr(processor, "boi_token") else self.placeholder)
        """What stands for each place of a picture; Gemma's templates write another token, one for a picture."""
        self.placeholder_id = int(tokenizer.convert_tokens_to_ids(self.place))
        self._sources: OrderedDict[int, str] = OrderedDict()
        self._bytes = 0
        self._ids: dict[str, int] = {}
        self._seen: OrderedDict[int, Seen] = OrderedDict()
        self.rates: Rates | None = None
        """At which rates prompts show pictures; None: all at the full one."""

    @classmethod
    def of(cls, config: Any, folder: str, tokenizer: Any, **extra: Any) -> PictureTokens:
        """What a model's files say of its pictures.

        Args:
            config: of the whole model.
            folder: or a hub's name.
        Raises:
            RecipeError: there is no processor for pictures, or it does not fit the tokenizer.
        """
        from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

        if type(config) not in PROCESSOR_MAPPING:
            raise RecipeError(f"model.path: transformers has no processor of pictures for {type(config).__name__}")
        made = bare_processor(PROCESSOR_MAPPING[type(config)], folder, tokenizer, **extra)
        tokens = cls(made)
        named = getattr(config, "image_token_id", None)
        if named is None:
            named = getattr(config, "image_token_index", None)
        if tokens.placeholder_id != named:
            raise RecipeError(
                f"model.path: the placeholder of pictures, {quoted(tokens.place)}, is token "
                f"{tokens.placeholder_id} of the tokenizer, and {named} in config.json; allowed: the same"
            )
        return tokens

    def save(self, folder: Path) -> None:
        """Write the processor beside a model, as transformers reads it."""
        self.processor.image_processor.save_pretrained(folder)
        # to_dict alone: save_pretrained asks for every part, also those that are not there.
        kept = {name: value for name, value in vars(self.processor).items() if name in self._settings}
        said = {"processor_class": type(self.processor).__name__.removeprefix(_OWN), **kept}
        (folder / "processor_config.json").write_text(to_json(said, indent=2) + "\n", "utf-8")

    @cached_property
    def _settings(self) -> frozenset[str]:
        """Names of the processor's own settings: numbers, texts and truth values of its constructor."""
        names = inspect.signature(type(self.processor).__mro__[1].__init__).parameters
        plain = (int, float, str, bool)
        return frozenset(
            name for name in names if name != "chat_template" and isinstance(getattr(self.processor, name, None), plain)
        )

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        """The processor's own settings of images, as its ``__call__`` finds them."""
        return self.processor._merge_kwargs(tokenizer_init_kwargs={}, return_tensors="pt")["images_kwargs"]

    def remember(self, messages: Sequence[Message]) -> list[Picture]:
        """The pictures of chat messages, in their order; from now on they are found by their ids.

        Raises:
            RecipeError: one cannot be read, or there are too many.
        """
        sources = list(picture_parts(messages))
        if len(sources) > MOST_PICTURES:
            raise RecipeError(f"a prompt has {len(sources)} pictures; allowed: at most {MOST_PICTURES}")
        pictures = [self._remembered(source) for source in sources]
        if self.rates is None:
            return pictures
        chosen = zip(pictures, self.rates([picture.id for picture in pictures]), strict=True)
        return [self.seen(at_rate(picture.id, rate)).picture for picture, rate in chosen]

    def foresee(self, conversations: Iterable[Sequence[Message]]) -> None:
        """Choose the rates of all pictures of chat messages together, before any of these is rendered.

        Raises:
            RecipeError: one cannot be read.
        """
        if self.rates is not None:
            sources = (source for messages in conversations for source in picture_parts(messages))
            self.rates([self._remembered(source).id for source in sources])

    @contextmanager
    def rated(self, rate: Callable[[int], int]) -> Iterator[None]:
        """Inside, prompts show pictures at these rates, each by its id alone."""
        before, self.rates = self.rates, one_by_one(rate)
        try:
            yield
        finally:
            self.rates = before

    def all_at(self, tokens: Sequence[int], rate: int) -> list[int]:
        """The same path with its pictures, which are whole, at this rate."""
        out: list[int] = []
        for token in tokens:
            if not is_picture(token):
                out.append(token)
            elif not id_and_place(token)[1]:
                id = at_rate(id_and_place(token)[0], rate)
                out += [picture_token(id, place) for place in range(self.seen(id).places)]
        return out

    def changed(self, id: int, change: Callable[[Pixels], Pixels]) -> int:
        """The id of what a function makes of a picture that some prompt has shown, at the same rate. A row may show it
        from now on."""
        pixels = change(self._pixels(at_rate(id, FULL)))
        return at_rate(self._remembered(data_uri(pixels)).id, rate_of(id))

    def _remembered(self, source: str) -> Picture:
        known = self._ids.get(source)
        if known is not None:
            self._sources.move_to_end(known)
            return self.seen(known).picture
        pixels = read_picture(source)
        picture = picture_of(pixels)
        if picture.id not in self._sources:
            self._sources[picture.id] = source
            self._bytes += len(source)
            self._ids[source] = picture.id
        if picture.id not in self._seen:
            self._keep(self._processed(picture, pixels))
        while self._bytes > SOURCES_BYTES and len(self._sources) > MOST_PICTURES:
            _, forgotten = self._sources.popitem(last=False)
            self._bytes -= len(forgotten)
            self._ids.pop(forgotten, None)
        return picture

    def seen(self, id: int) -> Seen:
        """A picture that some prompt has shown, at whatever rate, as the model takes it."""
        if id not in self._seen and rate_of(id) != FULL:
            self._keep(_compressed(self.seen(at_rate(id, FULL)), id, self.place))
        elif id not in self._seen:
            pixels = self._pixels(id)
            self._keep(self._processed(picture_of(pixels), pixels))
        self._seen.move_to_end(id)
        return self._seen[id]

    def _pixels(self, id: int) -> Pixels:
        """Of a picture at its full rate that some prompt has shown."""
        source = self._sources.get(id)
        if source is None:
            raise RuntimeError(f"picture {id:x} is among a path's tokens, and no prompt has shown it here")
        pixels = read_picture(source)
        if picture_of(pixels).id != id:
            raise RecipeError(f"picture {quoted(source[:100])} has changed since the run read it")
        return pixels

    def runs(self, id: int) -> list[int]:
        """How many places a picture has in each run of them: one, or one for each of its tiles."""
        return [run.count(self.place) for run in _runs(self.place).findall(self.seen(id).text)]

    def _keep(self, seen: Seen) -> None:
        self._seen[seen.picture.id] = seen
        while len(self._seen) > PATCHES_HELD:
            self._seen.popitem(last=False)

    def _processed(self, picture: Picture, pixels: Pixels) -> Seen:
        from PIL import Image

        processor = self.processor
        images, _ = _two(processor.prepare_inputs_layout(images=[Image.fromarray(pixels)]))
        try:
            found, texts = processor._process_images(images, **self._defaults)
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            size = f"{picture.width} x {picture.height}"
            raise RecipeError(f"picture: the model's image processor refuses {size} pixels: {error}") from error
        text = str(texts[0])
        places = text.count(self.place)
        if not 0 < places <= MOST_PLACES:
            raise RecipeError(f"picture: it becomes {places} placeholders; allowed: 1 to {MOST_PLACES}")
        inputs = {name: torch.as_tensor(value) for name, value in found.items() if _is_array(value)}
        return Seen(picture, inputs, text, places)

    def expanded(self, rendered: str, pictures: Sequence[Picture]) -> str:
        """A template's text with each picture's placeholder replaced by all that stands for it.

        Raises:
            RecipeError: the template writes another number of placeholders than there are pictures.
        """
        parts = rendered.split(self.placeholder)
        if len(parts) - 1 != len(pictures):
            raise RecipeError(
                f"model.chat_template: the template writes {len(parts) - 1} placeholders ({self.placeholder}) for "
                f"{len(pictures)} pictures; give one for models that see, in whose messages content is a list of parts"
            )
        texts = [self.seen(picture.id).text for picture in pictures]
        return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))

    def named(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """Tokens with their placeholders named after the pictures, in order."""
        names = iter(
            [picture_token(picture.id, place) for picture in pictures for place in range(self.seen(picture.id).places)]
        )
        out = [next(names, token) if token == self.placeholder_id else token for token in tokens]
        if next(names, None) is not None or self.placeholder_id in out:
            raise RecipeError(
                "model.chat_template: the tokenizer does not keep each placeholder of a picture one token; allowed: a "
                f"tokenizer in which {self.place} is a special token"
            )
        return out

    def plain_template(self, of_texts: str) -> str:
        """A chat template that writes the texts and placeholders of parts one after another, of one for texts alone."""
        shown = (
            f"{{%- if part['type'] == 'image' -%}}{{{{- {to_json(self.placeholder)} -}}}}"
            "{%- else -%}{{- part['text'] -}}{%- endif -%}"
        )
        inner = "{%- for part in message['content'] -%}" + shown + "{%- endfor -%}"
        return of_texts.replace("{{- message['content'] -}}", inner)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        """Tokens with the model's own placeholder in the place of named ones."""
        return [self.placeholder_id if is_picture(token) else token for token in tokens]


def _runs(placeholder: str) -> re.Pattern[str]:
    return re.compile(f"(?:{re.escape(placeholder)})+")


def _compressed(seen: Seen, id: int, placeholder: str) -> Seen:
    """A picture with a quarter of the placeholders."""
    text = _runs(placeholder).sub(lambda run: placeholder * (run[0].count(placeholder) // SHARE), seen.text)
    return replace(seen, picture=seen.picture._replace(id=id), text=text, places=text.count(placeholder))


_OWN = "Bare"


def bare_processor(processor_class: Any, folder: str, tokenizer: Any, **extra: Any) -> Any:
    """A processor with a Pillow image processor, a tokenizer, and none of its parts for videos.

    Raises:
        RecipeError: its files are not there or cannot be read.
    """
    from transformers import AutoImageProcessor
    from transformers.processing_utils import ProcessorMixin

    with (
        quiet(),
        user_file("model.path", f"the image processor of {folder} cannot be loaded", "save it beside the model"),
    ):
        image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **extra)
        settings, _ = ProcessorMixin.get_processor_dict(folder)
    if tokenizer.chat_template is None and isinstance(settings.get("chat_template"), str):
        tokenizer.chat_template = settings["chat_template"]
    return processor_of(processor_class, image_processor, tokenizer, settings)


def processor_of(processor_class: Any, image_processor: Any, tokenizer: Any, settings: Mapping[str, Any]) -> Any:
    """A processor made of its parts, those for videos left out.

    Args:
        settings: its constructor's further arguments, as ``processor_config.json`` has them.
    """
    own = type(_OWN + processor_class.__name__, (processor_class,), {"check_argument_for_proper_class": _any})
    made: Any = own.__new__(own)
    parts = dict.fromkeys(processor_class.get_attributes())
    parts |= {"image_processor": image_processor, "tokenizer": tokenizer}
    given = {name: value for name, value in settings.items() if name not in parts and name != "processor_class"}
    with suppress(ImportError):  # SmolVLM's asks for a package that only its videos need, after all that matters here
        made.__init__(**parts, **given)
    made.image_processor, made.tokenizer = image_processor, tokenizer
    return made


def _any(self: Any, name: str, argument: Any) -> Any:
    """In the place of the check that every part is there."""
    return type(argument)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _two(layout: Any) -> tuple[Any, Any]:
    """The images of a processor's layout: some return them with the text, others with everything they may take."""
    return layout[0], layout[1]


def pictures_of(tokenizer: transformers.PreTrainedTokenizerBase) -> PictureTokens | None:
    """How the tokenizer's model takes pictures; None where it reads text alone."""
    return cast(PictureTokens | None, vars(tokenizer).get(_NAME))


def give_pictures(tokenizer: transformers.PreTrainedTokenizerBase, pictures: PictureTokens) -> None:
    """Let a tokenizer's owner read pictures too."""
    vars(tokenizer)[_NAME] = pictures


_NAME = "lyceum_pictures"


@dataclass
class ShownPictures(Note):
    """Pictures that a tree shows beside its task's own: those of a tool's results, or of other prompts.

    Tokens name a picture and do not hold it: who trains the tree may not have rendered what showed it.

    Attributes:
        sources: where each is, as its message says: a path, or a ``data:`` URI.
    """

    kind: ClassVar[str] = "shown-pictures"
    sources: list[str] = field(default_factory=list)

    def in_table(self) -> int:
        return len(self.sources)


def note_shown(tree: Tree, messages: Sequence[Message]) -> None:
    """Add to a tree's note the pictures of messages that neither its task nor the note has."""
    shown = list(picture_parts(messages))
    note = tree.note(ShownPictures)
    known = {*picture_parts(tree.task.messages), *(note.sources if note else ())}
    new = [source for source in dict.fromkeys(shown) if source not in known]
    if not new:
        return
    if note is None:
        tree.add_note(note := ShownPictures())
    note.sources += new


def shown_by(tree: Tree) -> Iterator[Sequence[Message]]:
    """Messages with the pictures that a tree's tokens may name: its task's, then each further one."""
    yield tree.task.messages
    for source in (source for note in tree.notes(ShownPictures) for source in note.sources):
        part: dict[str, Any] = {"type": "image", "image": source}
        yield [{"role": "user", "content": [part]}]
