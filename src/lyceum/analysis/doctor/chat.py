"""Checks of the chat template and of how a completion ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import jinja2

from lyceum.analysis.doctor.result import CheckResult
from lyceum.analysis.doctor.subject import Draw, Subject
from lyceum.core.types import Sampling
from lyceum.models.policy import Policy
from lyceum.utils.messages import plain
from lyceum.utils.terminal import quoted

ANSWER = "nightingale"
"""An answer that stands in no template."""

MARKER = re.compile(r"<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_\w{1,20}>")
"""What templates write as special tokens."""

TEMPLATE = "give the template that belongs to the tokenizer by model.chat_template=FILE"


async def template(subject: Subject) -> list[CheckResult]:
    """The prompt as rendered: the same twice, one beginning-of-sequence token, special tokens whole, and an answer's
    place right behind it."""
    policy, messages = subject.policy, subject.request.tasks[0].messages
    prompt, again = policy.render(messages), policy.render(messages)
    text = _text(policy, messages, generation=True)
    results = [
        CheckResult.of(
            "template: renders",
            prompt == again,
            f"{len(prompt)} tokens, {'the same' if prompt == again else 'different'} twice",
            allowed="the same twice",
            cure=f"its template is random or counts: {TEMPLATE}",
            tokens=len(prompt),
        ),
        _beginning(policy, prompt),
        _markers(policy, text),
        _answer_place(policy, messages, text),
        _next_turn(subject),
    ]
    if "strftime_now" in str(policy.tokenizer.chat_template):
        about = "may print today's date: prompts change from day to day unless its variable for the date is set"
        results.append(CheckResult("template: date", "note", f"{about} (model.chat_template_kwargs.date_string=TEXT)"))
    return results


def _text(policy: Policy, messages: Sequence[Any], *, generation: bool) -> str:
    chat = [plain(message) for message in messages]
    tokenizer = policy.tokenizer
    return cast(str, tokenizer.apply_chat_template(chat, add_generation_prompt=generation, tokenize=False))


def _answered(policy: Policy, messages: Sequence[Any], answer: str) -> str:
    """The chat with an answer; empty where the template refuses one, as those for a single turn do."""
    try:
        return _text(policy, [*messages, {"role": "assistant", "content": answer}], generation=False)
    except jinja2.TemplateError:
        return ""


def _beginning(policy: Policy, prompt: list[int]) -> CheckResult:
    bos = cast(int | None, policy.tokenizer.bos_token_id)
    count = 0
    while count < len(prompt) and prompt[count] == bos:
        count += 1
    added = cast(Any, policy.tokenizer("a")["input_ids"])
    note = "; the tokenizer puts one before plain text, the template does not" if not count and bos in added[:1] else ""
    own = cast(str, policy.tokenizer.bos_token)
    return CheckResult.of(
        "template: beginning of sequence",
        count <= 1,
        f"{count} x {quoted(own)}{note}" if bos is not None else "the tokenizer has none",
        allowed="at most one",
        cure=f"take {{{{ bos_token }}}} or {own} out of the template, where it stands twice (model.chat_template=FILE)",
        beginnings=count,
    )


def _markers(policy: Policy, text: str) -> CheckResult:
    """Special tokens, and what looks like one in the rendered prompt, are each one token."""
    tokenizer = policy.tokenizer
    known = dict.fromkeys([*MARKER.findall(text), *map(str, tokenizer.all_special_tokens)])
    sizes = {token: len(cast(Any, tokenizer(token, add_special_tokens=False)["input_ids"])) for token in known}
    split = {token: size for token, size in sizes.items() if size != 1}
    first = next(iter(split.items()), ("", 0))
    return CheckResult.of(
        "template: special tokens",
        not split,
        f"{len(sizes)}, each one token" if not split else f"{quoted(first[0])} is {first[1]} tokens",
        allowed="one token each",
        cure=f"the template is of another model, or the tokenizer lost its added tokens: {TEMPLATE}",
        split=split,
    )


def _answer_place(policy: Policy, messages: Sequence[Any], prompt: str) -> CheckResult:
    """An answer stands right behind the rendered prompt when the chat is rendered whole, as in a second turn."""
    name = "template: generation prompt"
    without = _text(policy, messages, generation=False)
    whole = _answered(policy, messages, ANSWER)
    written = repr(prompt[len(without) :]) if prompt.startswith(without) else "another prompt"
    if not whole.startswith(prompt):
        return CheckResult(
            name, "note", f"{written}; the next turn's prompt does not begin with it: the template rewrites"
        )
    before, found, _ = whole[len(prompt) :].partition(ANSWER)
    if not found:
        return CheckResult(name, "note", f"{written}; an answer is not repeated in the next turn's prompt")
    if before.strip() and prompt != without:
        about = f"{written}; the next turn's prompt has {quoted(before)} before the answer: the template rewrites"
        return CheckResult(name, "note", about)
    return CheckResult.of(
        name,
        not before.strip(),
        f"{written}; the answer follows" if not before.strip() else f"none, but {quoted(before)} before an answer",
        allowed="what stands before an answer in a rendered chat",
        cure="add to the template: {% if add_generation_prompt %}" + before + "{% endif %} (model.chat_template=FILE)",
        before=before,
    )


def _next_turn(subject: Subject) -> CheckResult:
    """Whether a sampled answer, decoded and rendered again, is token for token what was sampled: a note, since a text
    may be written in other tokens than its tokenizer's."""
    policy, same = subject.policy, 0
    messages = {prompt: task.messages for prompt, task in zip(subject.prompts, subject.request.tasks, strict=True)}
    ended = [draw for draw in subject.all_samples if draw.drawn.tokens[-1] in policy.stop_ids]
    for draw in ended:
        whole = _answered(policy, messages[draw.prompt], policy.decode(draw.drawn.tokens))
        tokens = cast(list[int], policy.tokenizer(whole, add_special_tokens=False)["input_ids"])
        same += tokens[: len(draw.path)] == draw.path
    about = f"{same} of {len(ended)} finished samples are token for token what the next turn's prompt begins with"
    return CheckResult("template: next turn", "note", about, values={"same": same, "finished": len(ended)})


async def end_of_sequence(subject: Subject) -> list[CheckResult]:
    """Model, tokenizer and template end an answer with the same token, and the engine stops there."""
    policy = subject.policy
    return [_ids(policy), _turn_end(policy, subject.request.tasks[0].messages), _pad(policy), await _stops(subject)]


def _ids(policy: Policy) -> CheckResult:
    tokenizer, causal = policy.tokenizer, policy.causal
    own = cast(int, tokenizer.eos_token_id)
    generation = _as_list(getattr(causal.generation_config, "eos_token_id", None))
    config = _as_list(causal.config.get_text_config().eos_token_id)
    server = generation or config
    names = f"tokenizer {own} {quoted(tokenizer.eos_token)}, generation_config {generation}, config {config}"
    outside = [token for token in policy.stop_ids if not 0 <= token < policy.output.weight.shape[0]]
    return CheckResult.of(
        "end of sequence: ids",
        own in server and not outside,
        names,
        allowed="the tokenizer's among those of generation_config.json, all in the vocabulary",
        cure=f"lyceum stops at all of them, a server only at {server}: set eos_token_id in generation_config.json "
        f"to {sorted({own, *server} - set(outside))}",
        tokenizer=own,
        generation_config=generation,
        config=config,
    )


def _as_list(ids: Any) -> list[int]:
    return [] if ids is None else [int(ids)] if isinstance(ids, int) else [int(token) for token in ids]


def _turn_end(policy: Policy, messages: Sequence[Any]) -> CheckResult:
    """What the template writes after an answer, against the tokens that end a sample."""
    name = "end of sequence: template"
    whole = _answered(policy, messages, ANSWER)
    after = whole.rpartition(ANSWER)[2] if ANSWER in whole else ""
    if not after.strip():
        return CheckResult(
            name, "note", "the template writes nothing after an answer; the model has to have learned to end"
        )
    tokens = cast(list[int], policy.tokenizer(after.strip(), add_special_tokens=False)["input_ids"])
    first, stops = tokens[0], sorted(policy.stop_ids)
    special = first in policy.tokenizer.all_special_ids or first in policy.tokenizer.added_tokens_decoder
    setting = f"'rollout.sampling.stop_token_ids=[{first}]'" if special else f"'rollout.sampling.stop=[{after!r}]'"
    return CheckResult.of(
        name,
        first in policy.stop_ids,
        f"an answer ends with {quoted(after)}, token {first}",
        allowed=f"one that ends a sample: {', '.join(map(str, stops))}",
        cure=f"samples run on into the next turn; give {setting}, or add {first} to eos_token_id in "
        "generation_config.json",
        turn_end=first,
        stop_ids=stops,
    )


def _pad(policy: Policy) -> CheckResult:
    pad, stops = policy.tokenizer.pad_token_id, policy.stop_ids
    if pad is None:
        about = "none; lyceum needs none"
    elif pad in stops:
        about = f"{pad}, which also ends a sample; harmless here: lyceum masks by position and trains the last token"
    else:
        about = f"{pad}"
    return CheckResult("padding", "note", about, values={"pad": pad})


async def _stops(subject: Subject) -> CheckResult:
    """A sample ends with the first stop token that it draws, and only there.

    The model's own end of sequence is made likely by an answer already written; a stop token of the request is made
    certain: the third token of a sample, drawn again with the same seed.
    """
    policy, task = subject.policy, subject.request.tasks[0]
    answered = [*policy.render(task.messages), *policy.encode(ANSWER)[:-1]]
    ended = await subject.extend(answered, Sampling(), [subject.seed_of(i) for i in range(subject.request.samples)])
    forced: list[Draw] = []
    chosen = next((draw for draw in subject.all_samples if len(draw.drawn.tokens) >= STOP_AT), None)
    if chosen is not None:
        stop = chosen.sampling.model_copy(update={"stop_token_ids": (chosen.drawn.tokens[STOP_AT - 1],)})
        forced = await subject.extend(chosen.prompt, stop, [chosen.seed])
    draws = [*subject.all_samples, *ended, *forced]
    wrong = [draw for draw in draws if _ends_elsewhere(draw, {*policy.stop_ids, *draw.sampling.stop_token_ids})]
    natural = sum(draw.drawn.tokens[-1] in policy.stop_ids for draw in draws)
    return CheckResult.of(
        "end of sequence: samples",
        not wrong,
        f"{len(wrong)} of {len(draws)} end at another place than their first stop token; {natural} drew the model's "
        f"own, {len(forced)} one of the request",
        allowed="0",
        cure="the engine does not stop at the model's end of sequence or at stop_token_ids: give it those ids",
        wrong=len(wrong),
        natural=natural,
        forced=len(forced),
    )


def _ends_elsewhere(draw: Draw, stops: set[int]) -> bool:
    *before, last = draw.drawn.tokens
    return any(token in stops for token in before) or (draw.drawn.finish == "stop") != (last in stops)


STOP_AT = 3
"""Which token of a sample is requested as a stop token."""
