"""Whatever is drawn under a schema's mask is JSON of the schema, with any tokenizer."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from some_tokenizers import NAMES, tokenizer_of
from under_masks import draw, places, policy_of

from lyceum.core.types import Sampling
from lyceum.engine.constraint.json_schema import JsonSchemaConstraint
from lyceum.utils.errors import RecipeError


def fits(value, schema):
    """Whether a value is of one of the schemas below: an oracle of our own, a few lines for a few keywords."""
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"]:
        case "integer":
            integer = isinstance(value, int) and not isinstance(value, bool)
            return integer and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str) and len(value) <= schema["maxLength"]
        case "array":
            few = isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
            return few and all(fits(item, schema["items"]) for item in value)
        case _:
            named = isinstance(value, dict) and set(schema["required"]) <= value.keys() <= schema["properties"].keys()
            return named and all(fits(item, schema["properties"][name]) for name, item in value.items())


def integers(low, span):
    return {"type": "integer", "minimum": low, "maximum": low + span}


leaves = (
    st.builds(integers, st.integers(-50, 50), st.integers(0, 120))
    | st.just({"type": "boolean"})
    | st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 5))
    | st.lists(st.sampled_from(["a", "b", 'say "x"', 1, None, "ab"]), min_size=1, max_size=4, unique=True).map(
        lambda values: {"enum": values}
    )
)


def listed(items, least, more):
    return {"type": "array", "items": items, "minItems": least, "maxItems": least + more}


def named(fields, required):
    names = [name for name in fields if name in required]
    return {"type": "object", "properties": fields, "required": names, "additionalProperties": False}


schemas = st.recursive(
    leaves,
    lambda inner: (
        st.builds(listed, inner, st.integers(0, 2), st.integers(0, 2))
        | st.builds(
            named,
            st.dictionaries(st.sampled_from(["a", "name", "x y"]), inner, max_size=3),
            st.sets(st.sampled_from(["a", "name", "x y"])),
        )
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "word pieces"])
@settings(max_examples=40, deadline=None)
@given(schema=schemas, seed=st.integers(0, 10**6), whitespace=st.booleans())
def test_what_is_drawn_is_json_of_the_schema(name, schema, seed, whitespace):
    policy = policy_of(name)
    constraint = JsonSchemaConstraint(json_schema=schema, whitespace=whitespace).build(policy)
    tokens, ended = draw(constraint, policy, seed)
    text = tokenizer_of(name).decode(tokens, skip_special_tokens=True)
    if ended:
        assert fits(json.loads(text), schema), text
    else:
        assert whitespace, "without white space these schemas bound every length"


def test_the_end_is_allowed_where_the_json_is_complete_and_nowhere_else():
    policy = policy_of("characters")
    (end,) = policy.stop_ids
    state = JsonSchemaConstraint(json_schema=integers(10, 20)).build(policy).begin()
    digits = [policy.tokenizer.convert_tokens_to_ids(digit) for digit in "12"]
    assert end not in places(state.allowed())  # ""
    assert state.advance(digits[:1])
    assert end not in places(state.allowed())  # 1, and 10 to 30 are allowed
    assert state.advance(digits[1:])
    assert places(state.allowed()) == [end]  # 12


def test_a_state_is_a_function_of_the_tokens_alone_and_its_copies_go_their_own_way():
    policy = policy_of("characters")
    constraint = JsonSchemaConstraint(json_schema={"enum": ["ab", "ac"]}).build(policy)
    ids = [policy.tokenizer.convert_tokens_to_ids(character) for character in '"abc']
    one = constraint.begin()
    assert one.advance(ids[:2])
    other, again = one.copy(), constraint.begin()
    assert again.advance(ids[:1])
    assert again.advance(ids[1:2])
    assert one.advance(ids[2:3])  # "ab
    assert places(other.allowed()) == sorted(ids[2:]) == places(again.allowed())
    assert not other.advance(ids[:1])


HOSTILE = {
    "no type": {"type": "strng"},
    "remote reference": {"$ref": "http://example.org/schema"},
    "keyword unknown": {"type": "array", "uniqueItems": True},
    "leniency asked for": {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}},
    "nothing fits": {"type": "integer", "minimum": 2, "maximum": 1},
    "look-ahead": {"type": "string", "pattern": "(?=a)b"},
    "too long": {"enum": ["x" * 30_000]},
    "no number": {"const": float("nan")},
    "products": {"allOf": [{"anyOf": [{"type": "string", "pattern": f"^a{i}.*"} for i in range(20)]}] * 10},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_that_cannot_be_used_is_refused_before_a_model_loads(name):
    with pytest.raises(ValidationError, match="allowed"):
        JsonSchemaConstraint(json_schema=HOSTILE[name])


def test_a_deeply_nested_schema_is_refused():
    schema = {"type": "string"}
    for _ in range(60):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValidationError, match="allowed: a JSON schema"):
        JsonSchemaConstraint(json_schema=schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10**9},
        {"type": "string", "pattern": "(a{1000}){1000}"},
        {"type": "object", "properties": {f"p{i}": {} for i in range(900)}},
        {"properties": {"a": {"type": "object", "patternProperties": {"^.*$": {"$ref": "#"}}}}},
    ],
    ids=["long", "repeated", "wide", "recursive"],
)
def test_large_schemas_take_bounded_time_or_are_refused(schema):
    policy, started = policy_of("characters"), time.process_time()
    with suppress(RecipeError):
        draw(JsonSchemaConstraint(json_schema=schema).build(policy), policy, seed=0, most=20)
    assert time.process_time() - started < 20, "seconds, of processor time"


def test_a_schema_without_a_finite_text_is_refused_with_the_model():
    with pytest.raises(RecipeError, match=r"sampling.constraint.json_schema: .* allowed: a grammar"):
        JsonSchemaConstraint(json_schema={"$ref": "#"}).build(policy_of("characters"))


def test_a_tokenizer_that_cannot_be_read_is_refused():
    with pytest.raises(RecipeError, match="tokenizer cannot be read"):
        JsonSchemaConstraint(json_schema={"type": "integer"}).build(policy_of("word pieces"))


def test_a_recipe_keeps_it():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    sampling = Sampling.model_validate({"constraint": {"kind": "json-schema", "json_schema": schema}})
    assert Sampling.model_validate(sampling.model_dump(mode="json")) == sampling
    assert sampling.needed == {"constraint"}
    assert Sampling().needed == frozenset()
