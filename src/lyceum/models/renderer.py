"""Messages to tokens and back: prompts, follow-up turns, spans of text, by the tokenizer and its chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

from lyceum.core.pictures import Picture, is_picture, pictures_in
from lyceum.core.spans import TokenEnds, text_ends, token_span
from lyceum.core.tree import Node
from lyceum.core.types import History, Message, Spoken
from lyceum.core.user_files import user_file
from lyceum.models._appended import StandIn, appended, question, stand_in
from lyceum.models.chat import ADVICE, KEY
from lyceum.models.control_tokens import ControlTokens
from lyceum.models.picture_tokens import pictures_of
from lyceum.models.responses import Form, form_of
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.messages import check_text, in_parts, picture_parts, plain, text_of
from lyceum.utils.terminal import quoted

ANSWER = "nightingale"
"""Stands for an answer, to see what a template writes after one."""
CARRIES = (
    "allowed: a model or a template (model.chat_template) that writes them; for tools also calls within the text "
    "(environment.notation)"
)


@dataclass(frozen=True)
class RenderedPrompt:
    """What an answer is sampled after.

    Attributes:
        messages: the conversation so far, earlier answers included.
        tools: the tools that the model may call, as JSON schemas.
        text: the tokens' text, special tokens included. A special token that a message spells is not one here: it is
            written with a space in it.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    text: str
    tokens: tuple[int, ...]


class FollowUp(NamedTuple):
    """How a conversation goes on after an answer.

    Attributes:
        keep: how many tokens of prompt and answer stand: all where history is appended to, otherwise fewer where the
            template rewrites it (it takes earlier thoughts out, say): the path branches there.
        tokens: what comes after them, up to where the next answer begins.
        prompt: both together.
    """

    keep: int
    tokens: tuple[int, ...]
    prompt: RenderedPrompt


KEPT_TEXTS, KEPT_CHARACTERS = 4096, 4000
"""How many texts that a template has written are kept, and the length of what they were written of: 16 MB each way."""


class Renderer:
    """The tokenizer's chat template and text functions."""

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase) -> None:
        self.tokenizer, self.controls = tokenizer, ControlTokens(tokenizer)
        self.pictures = pictures_of(tokenizer)
        fast = type(tokenizer) is transformers.TokenizersBackend
        self._plain_decoding = fast and not tokenizer.clean_up_tokenization_spaces
        self._stand_ins: dict[tuple[str, ...], StandIn] = {}
        self._written: dict[str, str] = {}

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> RenderedPrompt:
        """Chat messages up to where the model's answer begins.

        Raises:
            RecipeError: the template refuses the messages or renders nothing, or a message is not text.
        """
        pictures = self._seen(messages)
        text = self._template(messages, tools)
        with self._errors_named():
            tokens = self._encode(text, pictures=pictures)
        if not tokens:
            chat = [plain(message) for message in messages]
            raise RecipeError(f"{KEY}: the template renders nothing for {quoted(chat)}; {ADVICE}")
        return RenderedPrompt(tuple(messages), tuple(tools), text, tuple(tokens))

    def follow(
        self,
        prompt: RenderedPrompt,
        answer: Sequence[int],
        messages: Sequence[Message],
        history: History = "append",
    ) -> FollowUp:
        """The conversation after an answer and further messages: a tool's results, or a user's next question.

        What stands is never tokenised again, even where the template would write it a little differently (trimmed).
        Where the new messages make the template write earlier turns differently than before, ``append`` keeps what
        stands all the same; ``template`` keeps it up to there, and the rest is new.

        Args:
            answer: sampled tokens, with their end-of-sequence token where there is one.
            messages: what comes after the answer; at least one.
        Raises:
            RecipeError: the template refuses the messages, or leaves one of them out.
        """
        said: Message = {"role": "assistant", "content": self.decode(answer)}
        conversation = (*prompt.messages, said, *messages)
        if history == "append":
            keep, text = len(prompt.tokens) + len(answer), self._appended(prompt, answer, messages)
        else:
            keep, text = self._rewritten(prompt, answer, messages, said)
        kept = (*prompt.tokens, *answer)[:keep]
        tokens = self._encode(text, after=kept, pictures=self._further(conversation, kept))
        whole = self._path_text(prompt, answer, keep) + text
        return FollowUp(keep, tokens, RenderedPrompt(conversation, prompt.tools, whole, (*kept, *tokens)))

    def standing(self, prompt: RenderedPrompt, answer: Sequence[int], now: RenderedPrompt) -> FollowUp:
        """A conversation that was rendered as a whole, after as much of an earlier prompt and its answer as stands in
        its text."""
        keep, text = self._left(prompt, answer, now.text)
        kept = (*prompt.tokens, *answer)[:keep]
        tokens = self._encode(text, after=kept, pictures=self._further(now.messages, kept))
        return FollowUp(keep, tokens, replace(now, tokens=(*kept, *tokens)))

    def check_results(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a template that cannot carry tools' results, before anything is sampled.

        Raises:
            RecipeError: it says how.
        """
        asked: Message = {"role": "user", "content": ANSWER}
        self._stand_in((asked,), ({"role": "tool", "content": ANSWER},), tools)

    @cached_property
    def form(self) -> Form | None:
        """How the template writes calls of tools; None where it writes none, or in a form that is not known."""
        return form_of(
            lambda messages, tools, answering: self._template(messages, tools, answering=answering),
            getattr(self.tokenizer, "response_template", None),
        )

    def spoken(self, before: str, said: Sequence[int], tools: Sequence[Mapping[str, Any]] = ()) -> Spoken | None:
        """What a turn says, in the template's own form; None where it has none.

        Args:
            before: the text above the turn, from the turn before it on at least: the template has begun this one there.
            tools: as JSON schemas, by which arguments get their types.
        """
        return None if self.form is None else self.form.read(before, self.text(said), tools)

    def within(self, path: Sequence[int], text: str) -> list[int]:
        """Tokens of a text that goes on right after a path's tokens, within the same turn: it cannot end the turn."""
        check_text(text)
        return list(self._encode(self.controls.as_text(text), after=path))

    def tokens(self, leaf: Node, start: int, stop: int) -> slice:
        """The tokens of a path, its prompt's counted, that end in ``leaf.completion[start:stop]``."""
        span = token_span(TokenEnds(self.decode).of(leaf), start, stop)
        prompt = len(leaf.path()[0].tokens)
        return slice(prompt + span.start, prompt + span.stop)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens: what graders read."""
        if self.pictures is not None:
            tokens = [token for token in tokens if not is_picture(token)]
        # Directly with the tokenizer's own library where transformers would only triple the time: rollouts that branch
        # decode every node.
        if self._plain_decoding:
            return cast(Any, self.tokenizer).backend_tokenizer.decode(list(tokens), skip_special_tokens=True)
        return cast(str, self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def text(self, tokens: Sequence[int]) -> str:
        """Text with special tokens, as a template writes it."""
        if self.pictures is not None:
            tokens = self.pictures.plain(tokens)
        text = self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return cast(str, text)

    def ending(self, answer: Sequence[int]) -> str:
        """The control token that an answer ends with, as text; empty where it ends with none."""
        return self.text(answer[-1:]) if answer and answer[-1] in self.controls.ids else ""

    def _appended(self, prompt: RenderedPrompt, answer: Sequence[int], messages: Sequence[Message]) -> str:
        """What the template writes after an answer that stands."""
        found = self._stand_in(prompt.messages, messages, prompt.tools)
        write, asked = partial(self._write, prompt.tools), question(prompt.messages)
        return appended(write, asked, messages, _name(prompt.tools), found, self.ending(answer), self.controls.pattern)

    def _rewritten(
        self, prompt: RenderedPrompt, answer: Sequence[int], messages: Sequence[Message], said: Message
    ) -> tuple[int, str]:
        """How many tokens of prompt and answer stand in the template's own history, and what comes after them."""
        standing, path = prompt.text + self.text(answer), (*prompt.tokens, *answer)
        before = self._template((*prompt.messages, said), prompt.tools, answering=False)
        now = self._template((*prompt.messages, said, *messages), prompt.tools)
        if now.startswith(standing):
            return len(path), now[len(standing) :]
        if now.startswith(before):
            keep, closing = self._closed(prompt, answer)
            return keep, closing + now[len(before) :]
        return self._left(prompt, answer, now)

    def _left(self, prompt: RenderedPrompt, answer: Sequence[int], now: str) -> tuple[int, str]:
        """How many tokens of prompt and answer stand in a conversation's text, and what comes after them there."""
        shared = self.controls.shared(prompt.text + self.text(answer), now)
        keep = self._shared(prompt, answer, len(shared) - 1)
        return keep, now[shared[len(self._path_text(prompt, answer, keep))] :]

    def _stand_in(
        self, asked: Sequence[Message], messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> StandIn:
        """The turn after which the template writes messages of these roles.

        Raises:
            RecipeError: there is none.
        """
        roles = tuple(str(message["role"]) for message in messages)
        if roles not in self._stand_ins:
            try:
                found = stand_in(partial(self._write, tools), question(asked), messages, _name(tools))
            except RecipeError as error:
                raise RecipeError(f"{KEY}: {self._used} {error.lines[0]}; {CARRIES}") from error
            self._stand_ins[roles] = found
        return self._stand_ins[roles]

    def _write(self, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message], answering: bool) -> str:
        """As :meth:`_template`, kept: trajectories of a group see the same answers again and again."""
        if self.pictures is not None:
            return self._template(messages, tools, answering=answering)
        key = repr((messages, tools, answering))
        if (written := self._written.get(key)) is None:
            written = self._template(messages, tools, answering=answering)
            if len(key) <= KEPT_CHARACTERS:
                self._written[key] = written
                if len(self._written) > KEPT_TEXTS:
                    del self._written[next(iter(self._written))]
        return written

    def _closed(self, prompt: RenderedPrompt, answer: Sequence[int]) -> tuple[int, str]:
        """How many tokens of prompt and answer stay, and what the template writes after an answer that is not there."""
        dummy: Message = {"role": "assistant", "content": ANSWER}
        closed = (*prompt.messages, dummy)
        whole = self._template(closed, prompt.tools, answering=False)
        closing = whole.rpartition(ANSWER)[2]
        length = len(prompt.tokens) + len(answer)
        last = self.text(answer[-1:]) if answer and answer[-1] in self.tokenizer.all_special_ids else ""
        if last and closing.startswith(last):
            return length, closing[len(last) :]
        # Another end of sequence than the template's, which no earlier turn has: the path is left before it.
        return length - (bool(last) and answer[-1] == self.tokenizer.eos_token_id), closing

    def _shared(self, prompt: RenderedPrompt, answer: Sequence[int], shared: int) -> int:
        """How many tokens of prompt and answer lie in the first ``shared`` characters of their text."""
        standing = prompt.text + self.text(answer)
        ends = text_ends(prompt.tokens, prompt.text, self.text)
        if shared >= len(prompt.text):
            own = text_ends(answer, standing[len(prompt.text) :], self.text, prompt.tokens)
            ends += [len(prompt.text) + end for end in own]
        return token_span([0, *ends], 0, shared).stop

    def _path_text(self, prompt: RenderedPrompt, answer: Sequence[int], keep: int) -> str:
        """The text of the first tokens of prompt and answer."""
        if keep >= len(prompt.tokens):
            return prompt.text + self.text(answer[: keep - len(prompt.tokens)])
        return prompt.text[: [0, *text_ends(prompt.tokens, prompt.text, self.text)][keep]]

    def _seen(self, messages: Sequence[Message]) -> list[Picture]:
        """The pictures of messages, in their order.

        Raises:
            RecipeError: one cannot be read, or the model reads text alone.
        """
        if self.pictures is not None:
            return self.pictures.remember(messages)
        if any(True for _ in picture_parts(messages)):
            raise RecipeError(
                "model.path: a message holds a picture, and the model reads text alone; allowed: a model that sees, "
                "such as InternVL, Qwen-VL, SmolVLM or LLaVA, or tasks without pictures"
            )
        return []

    def _further(self, messages: Sequence[Message], kept: Sequence[int]) -> list[Picture]:
        """The pictures of a conversation that are not in its first tokens, as :meth:`_seen`."""
        seen = self._seen(messages)
        return seen[pictures_in(kept) :] if seen else []

    def _template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        answering: bool = True,
    ) -> str:
        """What the template writes, with all that stands for each picture."""
        chat = [plain(message) for message in messages] if self.pictures is None else in_parts(messages)
        for message in chat:
            check_text(text_of(message.get("content") or ""))
        with self._errors_named():
            rendered = self.tokenizer.apply_chat_template(
                self.controls.as_text(chat),
                tools=self.controls.as_text([dict(tool) for tool in tools]) or None,
                add_generation_prompt=answering,
                tokenize=False,
            )
        written = cast(str, rendered)
        return written if self.pictures is None else self.pictures.expanded(written, self._seen(messages))

    def _errors_named(self) -> AbstractContextManager[None]:
        return user_file(KEY, self._used, ADVICE)

    @property
    def _used(self) -> str:
        return f"the template used with {self.tokenizer.name_or_path or 'the model'}"

    def _encode(self, text: str, after: Sequence[int] = (), pictures: Sequence[Picture] = ()) -> tuple[int, ...]:
        """Tokens of a part of a conversation.

        Args:
            after: the tokens before it. Where they end in a special token it is encoded after that one, as within the
                whole text: some tokenizers put a space before what they take for the beginning.
            pictures: whose placeholders are in the text.
        """
        if pictures:
            assert self.pictures is not None
            return tuple(self.pictures.named(self._encode(text, self.pictures.plain(after[-1:])), pictures))
        last = list(after[-1:]) if after and after[-1] in self.tokenizer.all_special_ids else []
        encoded = self.tokenizer(self.text(last) + text, add_special_tokens=False, verbose=False)["input_ids"]
        tokens = cast(list[int], encoded)
        if tokens[: len(last)] != last:
            return tuple(cast(list[int], self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]))
        return tuple(tokens[len(last) :])


def _name(tools: Sequence[Mapping[str, Any]]) -> str:
    """The first tool's name; a word without tools."""
    first: Mapping[str, Any] = tools[0].get("function", tools[0]) if tools else {}
    return str(first.get("name") or "tool")
