"""Models around some tokenizers, and completions drawn evenly among the tokens that a constraint allows."""

import numpy as np
from some_tokenizers import SPECIAL, tokenizer_of
from tiny_models import SMALL
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lyceum.models.policy import Policy

PADDED = 5
"""Rows of the output layer beyond the vocabulary, as many models have."""
policies = {}


def policy_of(name):
    """A model around a tokenizer; its weights do not matter."""
    if name not in policies:
        backend = tokenizer_of(name)
        end = next(end for end in ("<|im_end|>", *SPECIAL, "<eos>") if backend.token_to_id(end) is not None)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end, clean_up_tokenization_spaces=False)
        width = len(tokenizer) + PADDED
        config = SMALL | {"hidden_size": 8, "vocab_size": width, "eos_token_id": tokenizer.eos_token_id}
        policies[name] = Policy(LlamaForCausalLM(LlamaConfig(**config)), tokenizer)
    return policies[name]


def places(bits):
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def draw(constraint, policy, seed, most=400):
    """A completion of tokens drawn evenly among those allowed, and whether it ended."""
    rng, state, tokens = np.random.default_rng(seed), constraint.begin(), []
    while len(tokens) < most:
        allowed = places(state.allowed())
        assert max(allowed) < policy.output.weight.shape[0] - PADDED
        # The end is taken where it may be: it may be nowhere else than where the JSON is complete.
        end = sorted(set(allowed) & policy.stop_ids)
        token = end[0] if end and rng.random() < 0.5 else int(rng.choice(allowed))
        if token in policy.stop_ids:
            return tokens, True
        assert state.advance([token])
        tokens.append(token)
    return tokens, False
