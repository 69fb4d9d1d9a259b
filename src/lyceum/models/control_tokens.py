"""Texts that spell a tokenizer's control tokens are encoded as text: a policy that writes ``<|im_end|>`` in letters
ends no turn of its judge's prompt, and neither does a dataset or a tool."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

from lyceum.utils.lazy_imports import transformers

THOUGHT = re.compile(r"think|thought|reason", re.I)
"""Marks of thoughts are no control tokens: demonstrations have to spell them, and they end no turn."""
USUAL = re.compile(
    r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>\s]{1,60}｜>|</?s>|<[be]os>|</?(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
)
"""How widespread models spell theirs, for a model behind an endpoint, whose tokenizer is not known."""


def broken(text: str, spelling: re.Pattern[str] = USUAL) -> str:
    """A text in which each control token has a space behind its first character: ``< |im_end|>``."""
    while True:
        apart = spelling.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
        if apart == text:
            return text
        text = apart


class ControlTokens:
    """What a tokenizer makes a single token of that is no text: its special tokens, but for marks of thoughts.

    A space is put into their spelling, which holds for every template and every tokenizer: encoding the parts of a
    rendered conversation apart would put spaces of its own before each part in some. Texts that spell none stay as
    they are.
    """

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def as_text(self, value: Any) -> Any:
        """A text, or a message or a tool's schema with all texts in it, in which no control token is spelled."""
        if isinstance(value, str):
            return self._as_text(value)
        if isinstance(value, Mapping):
            return {self.as_text(key): self.as_text(item) for key, item in cast(Mapping[Any, Any], value).items()}
        if isinstance(value, list | tuple):
            return [self.as_text(item) for item in cast(list[Any], value)]
        return value

    def shared(self, standing: str, now: str) -> list[int]:
        """Where each beginning of a text that two renderings share ends in the second, the empty one first.

        Args:
            standing: the first, in which sampled answers stand as they are.
            now: the second, in which control tokens that answers spell have a space in them.
        """
        ends = [0]
        for at, letter in enumerate(standing):
            end = ends[-1]
            if now[end : end + 1] == " " != letter and at and self.pattern.match(standing, at - 1):
                end += 1
            if now[end : end + 1] != letter:
                break
            ends.append(end + 1)
        return ends

    def _as_text(self, text: str) -> str:
        if self._normalised and not text.isascii():
            # Such tokens are looked for in the normalised text, where full-width letters may spell them.
            folded = unicodedata.normalize("NFKC", text)
            text = folded if any(spelled in folded.lower() for spelled in self._lower) else text
        found = any(spelled in text for spelled in self._spellings)
        if not found and not (self._normalised and any(spelled in text.lower() for spelled in self._lower)):
            return text
        return broken(text, self.pattern)

    @cached_property
    def _tokens(self) -> dict[str, bool]:
        """The spelling of each control token, and whether it is looked for in the normalised text."""
        added: Mapping[int, Any] = getattr(self.tokenizer, "added_tokens_decoder", {})
        named = dict.fromkeys(map(str, self.tokenizer.all_special_tokens), False)
        # Marks of turns may have been added as plain tokens, as ``add_tokens`` does.
        marks = [token for token in added.values() if token.special or USUAL.fullmatch(str(token).strip())]
        marked = {str(token): bool(token.normalized) for token in marks}
        # A single character cannot be broken, and a vocabulary that pads with one has to write it in texts as well.
        return {
            text.strip(): how
            for text, how in (named | marked).items()
            if len(text.strip()) > 1 and not THOUGHT.search(text)
        }

    @cached_property
    def ids(self) -> frozenset[int]:
        """The tokens themselves."""
        known = cast(Mapping[str, int], cast(Any, self.tokenizer).get_added_vocab())
        return frozenset(self.tokenizer.all_special_ids) | {
            token for text, token in known.items() if text.strip() in self._tokens
        }

    @cached_property
    def _spellings(self) -> list[str]:
        return list(self._tokens)

    @cached_property
    def _normalised(self) -> bool:
        return any(self._tokens.values())

    @cached_property
    def _lower(self) -> list[str]:
        return [text.lower() for text in self._spellings]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._spellings, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)), re.I if self._normalised else 0)
