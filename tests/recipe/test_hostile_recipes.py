"""Recipes and overrides that are written to do harm: each is refused with a line, at once."""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from lyceum.core.component import MOST_LINES, explain, kinds
from lyceum.core.paper_folders import SLOTS
from lyceum.core.types import Sampling
from lyceum.models.load import LoraSettings
from lyceum.recipe.schema import Recipe, load_recipe
from lyceum.utils.errors import LONGEST_LINE, RecipeError


def refused(*overrides: Any) -> str:
    with pytest.raises(RecipeError) as error:
        load_recipe("grpo", list(overrides))
    assert len(error.value.lines) <= MOST_LINES + 1
    assert max(map(len, error.value.lines)) <= LONGEST_LINE
    return str(error.value)


BOMB = "[&a0 [x,x,x,x,x,x,x,x,x]" + "".join(f", &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)) + "]"
"""Nine to the power of nine texts: hours, and more memory than there is."""


@pytest.mark.parametrize("key", ["steps", "title", "tasks", "reward", "credit", "output", "model.path", "tasks.where"])
def test_nested_aliases_are_refused_in_any_key(key, tmp_path):
    assert "more than 10000 values" in refused(f"{key}={BOMB}")
    (tmp_path / "mine.yaml").write_text(f"extends: grpo\n{key.split('.')[0]}: {BOMB}\n")
    with pytest.raises(RecipeError, match="more than 10000 values"):
        load_recipe(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("credit={kind: [a]}", "credit.kind: got ['a']; allowed: action-gae, aepo"),
        ("credit={kind: {a: b}}", "credit.kind: got {'a': 'b'}; allowed: action-gae, aepo"),
        ("stages.0.kind=[a]", "stages.0.kind: got ['a']; allowed: bilevel, interleaved, mid-training"),
        ("tasks=&a [*a]", "an alias is inside the value that it refers to"),
        ("stages.².steps=1", "stages.²: got '²'; allowed: 0 to 0"),
        (f"stages.{'9' * 5000}.steps=1", "allowed: 0 to 0"),
        ("reward.0.0.weight=1", "reward.0.0: unknown key"),
        (f"steps={'1' * 5000}", "a number of 5000 digits"),
        (f"steps={'1' * 90}", "steps: got 1111"),
        (f"steps={'[' * 3000}", "more than 50 deep"),
        (f"tasks={'x' * 5000}", "tasks.kind: got 'xxx"),
        (f"tasks={'x' * 5000}.jsonl", "tasks.path: got 'xxx"),
        (f"model={'x' * 5000}", "model.path: got 'xxx"),
        (f"output={'x' * 256}", "allowed: a path of at most 4000 bytes, and at most 255 between two slashes"),
        (f"output={'x/' * 3000}", "allowed: a path of at most 4000 bytes"),
        (f"name={'é' * 100}", "allowed: at most 150 bytes"),
        (f"label={'x' * 151}", "allowed: at most 150 bytes"),
        (f"title={'x' * 150_000}", "title: got 'xxx"),
        (f"{'x' * 100_000}=1", "unknown key; allowed: average"),
        ('output="a\\0b"', "output: got 'a\\x00b'; allowed: text of Unicode characters, without NUL"),
        ('model="a\\0b"', "model.path: got 'a\\x00b'"),
        ('tasks="a\\0b.jsonl"', "tasks.path: got 'a\\x00b.jsonl'"),
        ('title="\\ud800"', "half of a surrogate pair"),
        (("credit", "\ud800"), "credit.kind: got '\\ud800'; allowed: action-gae, aepo"),
        (("title", "\ud800"), "title: got '\\ud800'; allowed: text of Unicode characters"),
        ("a..b=1", "'a..b': got as a key; allowed: 1 to 20 names, with one dot between two"),
        (".=1", "'.': got as a key"),
        ("=x", "override: got '=x'"),
        (".".join(["tasks"] * 5000) + "=1", "got as a key; allowed: 1 to 20 names"),
        ("steps.x=1", "steps.x: steps is 60 and has no keys"),
        ("steps=1:30", "steps: got '1:30'; allowed: a whole number"),
        ("tasks_per_step=1e20", "tasks_per_step: got 1e+20; too large for a whole number"),
        ("tasks_per_step=1000001", "tasks_per_step: got 1000001; allowed: numbers up to 1000000"),
        ("max_tokens=1e16", "max_tokens: got 1e+16; allowed: 1000000000000000 or less"),
        (f"seed={1 << 63}", "seed: got 9223372036854775808; allowed: 9223372036854775807 or less"),
        ("learner.lr=1e10", "learner.lr: got 10000000000.0; allowed: 0, or an absolute value of 1e-38 to 1e+09"),
        ("rollout.sampling.temperature=1e-300", "allowed: 0, or an absolute value of 1e-38"),
        ("rollout.sampling.temperature=1e-5", "temperature: got 1e-05; allowed: 0 (greedy), or 0.001 to 100"),
        ("rollout.sampling.top_p=1e-300", "top_p: got 1e-300; allowed: 1e-06 or more"),
        ("rollout.sampling.stop=['']", "stop.0: got ''; string should have at least 1 character"),
        (f"evaluate.k=[{','.join('1' * 1001)}]", "evaluate.k: got [1, 1, 1, 1, 1, 1, 1, 1, ...]; allowed: at most"),
        (f"guidance=[{','.join(['prefix'] * 101)}]", "allowed: at most 100 items"),
        ("reward={kind: format, pattern: 'a{99999999999}'}", "the repetition number is too large"),
        (f"reward={{kind: format, pattern: '{'(' * 999}'}}", "allowed: a Python regular expression"),
        (f"reward={{kind: format, pattern: '{'a' * 1001}'}}", "pattern: got 'aaa"),
        (f"tasks={{kind: dataset, path: d.jsonl, template: '{'{a}' * 51}'}}", "got 51 names in braces"),
        ("tasks={kind: dataset, path: d.jsonl, answer_after: ''}", "tasks.answer_after: got ''"),
        ("steps=!!python/name:os.system", "is not of a plain value"),
    ],
)  # fmt: skip
def test_what_would_have_hung_or_crashed_is_refused_with_a_line(override, said):
    assert said in refused(override)


def test_a_recipe_of_nothing_but_mistakes_is_told_a_few_of_them():
    said = refused(f"tasks={{{', '.join(f'levls{i}: 1' for i in range(3000))}}}", ("tasks.kind", "chain"))
    assert said.count("did you mean 'levels'?") == MOST_LINES
    assert said.endswith("and 100 or more more")


def test_the_greatest_numbers_that_are_allowed_are_taken():
    recipe = load_recipe("grpo", ["tasks_per_step=1e6", f"seed={(1 << 63) - 1}", "max_tokens=1e15"])
    assert (recipe.seed, recipe.stages[0].tasks_per_step) == ((1 << 63) - 1, 1_000_000)
    # The units of numbers in a mapping are unknown.
    where = {"time": 1_700_000_000, "mass": 1e30}
    settings = {"kind": "dataset", "path": "d.jsonl", "where": where}
    assert load_recipe("grpo", [("tasks", settings)]).tasks.where == where


def test_a_recipe_may_be_json_with_an_emoji(tmp_path):
    (tmp_path / "mine.yaml").write_text('{"extends": "grpo", "title": "\\ud83d\\ude00"}')
    assert load_recipe(str(tmp_path / "mine.yaml")).title == "\U0001f600"


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".yaml", "a\0b.yaml", "", "/"])
def test_a_name_that_no_file_can_have_is_no_recipe(name):
    with pytest.raises(RecipeError, match="recipe: got"):
        load_recipe(name)


def test_recipes_extend_one_another_so_often_and_no_more(tmp_path):
    for number in range(30):
        (tmp_path / f"r{number}.yaml").write_text(f"extends: r{number + 1}.yaml\n")
    with pytest.raises(RecipeError, match="allowed: a chain of at most 20"):
        load_recipe(str(tmp_path / "r0.yaml"))


def test_a_layers_name_is_no_regular_expression():
    # peft takes a text alone for one.
    assert LoraSettings.model_validate({"target_modules": "(a+)+b"}).target_modules == ("(a+)+b",)
    assert LoraSettings().target_modules == "all-linear"


# Every setting has a bound --------------------------------------------------------------------------------------------


def leaves(annotation: Any) -> set[Any]:
    """The plain types and settings anywhere in an annotation."""
    if typing.get_origin(annotation) is Literal:
        return set()
    inner = typing.get_args(annotation)
    return set().union(*map(leaves, inner)) if inner else {annotation}


def settings_classes() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    waiting: list[Any] = [Recipe, *(kind for slot in SLOTS for kind in kinds(slot).values())]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.append(kind)
            for field in kind.model_fields.values():
                inner = leaves(field.annotation)
                waiting += [leaf for leaf in inner if isinstance(leaf, type) and issubclass(leaf, BaseModel)]
    return [kind for kind in found if not inspect.isabstract(kind)]  # a slot's own: its kinds have its settings


def nested(annotation: Any, value: Any) -> Any:
    """A value of the annotation's shape: inside a list where that is a list."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return [nested(inner[0], value)] * (1 if inner[-1] is Ellipsis else len(inner))
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        shapes = [nested(each, value) for each in inner if leaves(each) & {int, float, str}]
        return next(iter(shapes), value)
    return value


def mistakes(kind: type[BaseModel], value: Any) -> ValidationError | None:
    try:
        kind.model_validate(value)
    except ValidationError as error:
        return error
    return None


def accepted(kind: type[BaseModel], name: str, value: Any) -> bool:
    error = mistakes(kind, {name: value})
    return error is None or not any(detail["loc"][:1] == (name,) for detail in error.errors())


def test_no_setting_takes_a_number_or_a_text_of_any_size():
    without: list[str] = []
    for kind in settings_classes():
        for name, field in kind.model_fields.items():
            plain = leaves(field.annotation) - {type(None)}
            if typing.get_origin(field.annotation) is dict or not plain & {int, float, str}:
                continue
            given = [1e30, 10**30] if plain & {int, float} else ["x" * 200_000, "a\0b"]
            if any(accepted(kind, name, nested(field.annotation, value)) for value in given):
                without.append(f"{kind.__name__}.{name}")
    assert without == ["Extract.mark"]  # read from its short form alone


def test_no_list_is_of_any_length():
    for kind in settings_classes():
        for name, field in kind.model_fields.items():
            if typing.get_origin(field.annotation) is tuple and typing.get_args(field.annotation)[-1] is Ellipsis:
                inner = leaves(field.annotation)
                item = "a" if str in inner else 1
                assert not accepted(kind, name, [item] * 1001), f"{kind.__name__}.{name}"


ODD = [None, "\ud800", {"kind": [1]}, [[None]], {1: 2}, "{", object()]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_whatever_a_setting_is_given_it_takes_or_explains(number):
    for kind in settings_classes():
        for name in kind.model_fields:
            error = mistakes(kind, {name: ODD[number]})
            assert error is None or explain(error, kind)


# Whatever is given ----------------------------------------------------------------------------------------------------

KEYS = ["steps", "seed", "tasks", "tasks.kind", "tasks.levels", "reward", "reward.0.weight", "rollout.sampling",
        "rollout.sampling.stop", "model", "model.lora", "evaluate.k", "evaluate.tasks", "stages", "stages.0.credit",
        "guidance", "credit.kind", "objective", "output", "name", "track", "learner.betas", "trust_code"]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["chain", "task", "math", "group", "online", "a.jsonl", "a:b", "\0", "\ud800", "x" * 300, "dataset"]
    ),
    st.sampled_from([10**400, -(10**400), 1e308, "1:30", "²"]),
)
names = st.one_of(st.sampled_from(["kind", "path", "tasks", "parts", "weight", "steps", "0", ""]), st.text(max_size=5))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
keys = st.one_of(
    st.sampled_from(KEYS),
    st.lists(st.one_of(st.sampled_from(KEYS), names), max_size=4).map(".".join),
    st.text(max_size=9),
)
overrides = st.one_of(
    st.tuples(keys, values), st.tuples(keys, st.text(max_size=20)).map("=".join), st.text(max_size=20)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(overrides, max_size=3))
def test_any_overrides_make_a_recipe_or_a_recipe_error(given):
    with contextlib.suppress(RecipeError):
        assert isinstance(load_recipe("grpo", given), Recipe)


@settings(max_examples=150, deadline=None)
@given(values)
def test_any_settings_are_explained(value):
    for kind in (Recipe, Sampling):
        error = mistakes(kind, value)
        assert error is None or explain(error, kind)
