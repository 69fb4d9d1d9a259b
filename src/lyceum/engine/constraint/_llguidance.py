"""Grammars by llguidance, the library that vLLM and SGLang use: tokens of a tokenizer in, masks of its vocabulary out.

The memory and time of a grammar are bounded by ``limits``: the most symbols of its rules and states of its lexer when
it is built, and the most work of one mask.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import llguidance
import numpy as np
from numpy.typing import NDArray

from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.terminal import quoted

LONGEST = 20_000
"""Maximum characters of a grammar's source."""


@functools.cache
def limits() -> llguidance.LLParserLimits:
    """A fifth of the library's own for one mask, and a tenth for the grammar: what takes longer is refused."""
    return llguidance.LLParserLimits(
        max_grammar_size=50_000,
        max_lexer_states=25_000,
        initial_lexer_fuel=200_000,
        step_lexer_fuel=40_000,
        step_max_items=10_000,
        verbose_errors=False,
    )


def mistake_in(grammar: str) -> str | None:
    """What is wrong with a grammar, in a line; None where nothing is."""
    wrong, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
    return quoted(" ".join(messages[0].split())[:300]) if wrong else None


class Grammar:
    """Implements :class:`lyceum.core.types.Constraint`: a completion is a text of the grammar and the end of sequence.

    Args:
        grammar: as llguidance's ``LLMatcher`` takes it.
        key: the recipe's key that it comes from, for messages.
    Raises:
        RecipeError: the policy's tokenizer cannot be read, or can write no text of the grammar.
    """

    def __init__(self, grammar: str, policy: Policy, *, key: str) -> None:
        self.key = key
        self.words = -(-policy.output.weight.shape[0] // 32)
        self._text = _text_alone(policy, self.words)
        self._first = llguidance.LLMatcher(_vocabulary(policy), grammar, log_level=0, limits=limits())
        if self._first.is_error():
            raise RecipeError(f"{key}: {quoted(self._first.get_error()[:300])}")
        self.begin().allowed()

    def begin(self) -> GrammarState:
        return GrammarState(self, self._first.deep_copy())


class GrammarState:
    """Implements :class:`lyceum.core.types.ConstraintState`."""

    def __init__(self, grammar: Grammar, matcher: llguidance.LLMatcher) -> None:
        self._grammar, self._matcher = grammar, matcher

    def allowed(self) -> NDArray[np.int32]:
        # Where the one text that can follow has characters that the vocabulary lacks, the matcher allows the token that
        # stands for unknown ones, and then refuses it.
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.int32)[: self._grammar.words] & self._grammar._text
        if self._matcher.is_error() or not bits.any():
            raise self._stuck()
        return bits

    def advance(self, tokens: Sequence[int]) -> bool:
        fits = self._matcher.consume_tokens(list(tokens))
        if (
            not fits and "max is" in self._matcher.get_error()
        ):  # a limit: only the message tells it from a refused token
            raise self._stuck()
        return fits

    def _stuck(self) -> RecipeError:
        why = self._matcher.get_error().partition("\n")[0]
        return RecipeError(
            f"{self._grammar.key}: no token of the model's vocabulary can follow, or too many rules apply: "
            f"{quoted(why[:300])}; allowed: a grammar that the tokenizer can write, within the limits"
        )

    def copy(self) -> GrammarState:
        return GrammarState(self._grammar, self._matcher.deep_copy())


def _text_alone(policy: Policy, words: int) -> NDArray[np.int32]:
    """A mask of the tokens that can be part of a text, or end it: all but special ones, which are decoded to none."""
    mask, tokenizer = np.full(words, -1, np.int32), policy.tokenizer
    bits, special = mask.view(np.uint32), set(tokenizer.all_special_ids)
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    for token in special - set(policy.stop_ids):
        bits[token // 32] &= ~np.uint32(1 << token % 32)
    return mask


_vocabularies: WeakKeyDictionary[Policy, llguidance.LLTokenizer] = WeakKeyDictionary()


def _vocabulary(policy: Policy) -> llguidance.LLTokenizer:
    """The policy's tokens as bytes, as wide as its logits; made once, which takes a second for a large vocabulary."""
    if policy not in _vocabularies:
        _vocabularies[policy] = _read(policy)
    return _vocabularies[policy]


def _read(policy: Policy) -> llguidance.LLTokenizer:
    tokenizer, ends = policy.tokenizer, sorted(policy.stop_ids)
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise RecipeError(
            f"constraint: got a model with a {type(tokenizer).__name__}; allowed: a tokenizer of the tokenizers library"
        )
    width = max(len(tokenizer), policy.output.weight.shape[0])
    try:
        if (json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {"type": "Fuse"})["type"] == "Fuse":
            return _of_texts(tokenizer, width, ends)
        from llguidance.hf import from_tokenizer  # here: imports transformers

        return from_tokenizer(tokenizer, n_vocab=width, eos_token=ends)
    except ValueError as error:
        raise RecipeError(f"constraint: the model's tokenizer cannot be read: {quoted(str(error)[:300])}") from error


class _Texts:
    """A tokenizer whose tokens are their texts, one after another, which the library does not read by itself."""

    bos_token_id = None

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerFast, end: int) -> None:
        self.eos_token_id = end
        self.special_token_ids = list(tokenizer.all_special_ids)
        names = cast(Any, tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))))
        self.tokens = [str(name).encode() for name in names]
        self._backend = tokenizer.backend_tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._backend.encode(text.decode(errors="ignore"), add_special_tokens=False).ids


def _of_texts(tokenizer: transformers.PreTrainedTokenizerFast, width: int, ends: list[int]) -> llguidance.LLTokenizer:
    wrapper = llguidance.TokenizerWrapper(_Texts(tokenizer, ends[0]))
    return llguidance.LLTokenizer(wrapper, n_vocab=width, eos_token=ends)
