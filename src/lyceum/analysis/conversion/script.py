"""The settings that a Python script hands to a trainer of TRL, read from its syntax tree. The script is never run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from lyceum.analysis.conversion.configuration import Configuration, Script, Trainer, Unread
from lyceum.utils.errors import RecipeError

MOST_VALUES = 100_000
"""Values that are read of a script: lists of names of lists of names multiply."""

OF_TRAINER: Mapping[str, Trainer] = {
    "GRPOConfig": "online",
    "RLOOConfig": "online",
    "DPOConfig": "dpo",
    "SFTConfig": "sft",
    "GRPOTrainer": "online",
    "RLOOTrainer": "online",
    "DPOTrainer": "dpo",
    "SFTTrainer": "sft",
}
CONFIGS = tuple(name for name in OF_TRAINER if name.endswith("Config"))
TRAINERS = tuple(name for name in OF_TRAINER if name.endswith("Trainer"))
_ADAPTERS = {"r": "lora_r", "target_modules": "lora_target_modules"}
_BLOCKS = (ast.If, ast.With, ast.Try)
_SCOPES = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CHANGES = ("map", "filter", "select", "shuffle", "remove_columns", "rename_column", "train_test_split")
"""Methods of a dataset that make other rows of it."""


def read_script(path: str, text: str) -> Configuration:
    """The settings of a script with a trainer of TRL for GRPO, RLOO, DPO or fine-tuning.

    Raises:
        RecipeError: it is not Python, or has no such trainer, or several.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RecipeError(f"convert: {path} is not Python: {error}") from error
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    if not any(_name(call.func) in (*CONFIGS, *TRAINERS) for call in calls):
        others = sorted({_name(call.func) for call in calls if _name(call.func).endswith(("Trainer", "Config"))})
        got = f"has {', '.join(others)}" if others else "has none"
        raise RecipeError(f"convert: {path} {got}; allowed: a script with {' or '.join((*CONFIGS, *TRAINERS))} of TRL")
    trainers: set[Trainer] = {OF_TRAINER[name] for call in calls if (name := _name(call.func)) in OF_TRAINER}
    if len(trainers) > 1:
        raise RecipeError(f"convert: {path} has trainers for {', '.join(sorted(trainers))}; allowed: a script with one")
    return Configuration("TRL", dict(_Reader(module, text).settings()), _script(path, module, text), trainers.pop())


class _Reader:
    def __init__(self, module: ast.Module, text: str) -> None:
        self.text, self.module = text, module
        self.values_left = MOST_VALUES
        self.statements = list(_statements(module.body, (*_BLOCKS, *_SCOPES)))
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in self.statements:
            for target, value in _assignments(node):
                self.assigned.setdefault(target, []).append(value)

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Keys and values of the calls that configure a run, in the script's order."""
        calls = [node for node in ast.walk(self.module) if isinstance(node, ast.Call)]
        calls.sort(key=lambda call: (call.lineno, call.col_offset))
        for call in calls:
            name = _name(call.func)
            if name in CONFIGS:
                yield from self.keywords(call)
            elif name in ("LoraConfig", "PeftConfig"):
                yield "use_peft", True
                for key, value in self.keywords(call):
                    yield _ADAPTERS.get(key, key if key.startswith("lora_") else f"peft_config.{key}"), value
            elif name == "BitsAndBytesConfig":
                yield from self.keywords(call)
            elif name in TRAINERS:
                yield from self.of_trainer(call)
        for node in self.statements:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Attribute) and _name(target.value) in self.configured():
                    yield target.attr, self.value(node.value)

    def configured(self) -> set[str]:
        """Names of configurations: what GRPOConfig returned, or a parser made of the command line."""
        made = (*CONFIGS, "parse_args_and_config", "parse_args_into_dataclasses")
        return {
            name
            for name, values in self.assigned.items()
            if any(isinstance(value, ast.Call) and _name(value.func) in made for value in values)
        }

    def keywords(self, call: ast.Call) -> Iterator[tuple[str, Any]]:
        for keyword in call.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                yield keyword.arg, value
            elif isinstance(value, Mapping):
                yield from value.items()
            else:
                yield f"**{value}", value

    def of_trainer(self, call: ast.Call) -> Iterator[tuple[str, Any]]:
        names = ("model", "reward_funcs", "args", "train_dataset", "eval_dataset")
        given = [*zip(names, call.args, strict=False), *((word.arg or "**", word.value) for word in call.keywords)]
        for key, value in given:
            if key in ("args", "peft_config"):
                continue  # made by a call whose own keywords are read
            if key in ("train_dataset", "eval_dataset"):
                yield from self.of_dataset(key, value)
            elif key in ("reward_funcs", "tools"):
                yield key, self.functions(value)
            elif key == "model":
                yield "model_name_or_path", self.model(value)
            else:
                yield key, self.value(value)

    def functions(self, node: ast.expr) -> Any:
        """Names of functions; Unread where they are made by a call."""
        if isinstance(node, ast.Name) and len(values := self.assigned.get(node.id, [])) == 1:
            node = values[0]
        parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        return names if len(names) == len(parts) else self.unread(node)

    def model(self, node: ast.expr) -> Any:
        """A model's name: as it is given, or the first argument of the ``from_pretrained`` that loads it."""
        value = self.value(node)
        for call in self.reached(node, "from_pretrained") if isinstance(value, Unread) else ():
            names = ("model_name", "pretrained_model_name_or_path")
            named = [word.value for word in call.keywords if word.arg in names]
            first = (call.args or named)[:1]
            if first and not isinstance(found := self.value(first[0]), Unread):
                return found
        return value

    def of_dataset(self, key: str, node: ast.expr) -> Iterator[tuple[str, Any]]:
        """Its name, configuration and split, where it comes from one ``load_dataset``, and what is done to its rows."""
        if isinstance(node, ast.Constant) and node.value is None:
            return
        loads = self.reached(node, "load_dataset")
        if not loads or key != "train_dataset":
            yield key, self.unread(node)
            return
        given = dict(zip(("dataset_name", "dataset_config"), map(self.value, loads[0].args), strict=False))
        of_keyword = {"path": "dataset_name", "name": "dataset_config", "split": "dataset_train_split"}
        given |= {of_keyword.get(name, f"load_dataset.{name}"): value for name, value in self.keywords(loads[0])}
        yield from given.items()
        for change in dict.fromkeys(self.changes(node)):
            yield f"{key}.{change}", change

    def changes(self, node: ast.expr) -> list[str]:
        """``map(make_prompt)`` for each call that makes other rows."""
        calls = [call for method in _CHANGES for call in self.reached(node, method)]
        calls.sort(key=lambda call: (call.lineno, call.end_lineno))
        named = [call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else "..." for call in calls]
        return [f"{_name(call.func)}({argument})" for call, argument in zip(calls, named, strict=True)]

    def reached(self, node: ast.expr, called: str) -> list[ast.Call]:
        """Calls of a function from whose results an expression is made, through the names that it uses."""
        found, open_, seen = [], [node], set[str]()
        while open_:
            for part in ast.walk(open_.pop()):
                if isinstance(part, ast.Call) and _name(part.func) == called:
                    found.append(part)
                if isinstance(part, ast.Name) and part.id not in seen:
                    seen.add(part.id)
                    open_ += self.assigned.get(part.id, [])
        return found

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The plain value of an expression of constants and of names that are assigned once; else Unread."""
        try:
            return self._plain(node, depth)
        except ValueError:
            return self.unread(node)

    def unread(self, node: ast.expr) -> Unread:
        return Unread(" ".join((ast.get_source_segment(self.text, node) or "...").split())[:200])

    def _plain(self, node: ast.expr, depth: int) -> Any:
        self.values_left -= 1
        if depth > 20 or self.values_left < 0:
            raise ValueError
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._plain(part, depth + 1) for part in node.elts]
        if isinstance(node, ast.Dict) and None not in node.keys:
            keys = [self._plain(key, depth + 1) for key in node.keys if key is not None]
            return dict(zip(map(str, keys), [self._plain(value, depth + 1) for value in node.values], strict=True))
        if isinstance(node, ast.Name) and len(values := self.assigned.get(node.id, [])) == 1:
            return self._plain(values[0], depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -_numeric(self._plain(node.operand, depth + 1))
        if isinstance(node, ast.BinOp):
            return self._computed(node, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # of a setting that the command line may have
            return self._plain(node.values[-1], depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return node.attr
        raise ValueError

    def _computed(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self._plain(node.left, depth + 1), self._plain(node.right, depth + 1)
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return left + right
        a, b = _numeric(left), _numeric(right)
        if isinstance(node.op, (ast.Div, ast.FloorDiv)) and b:
            return a / b if isinstance(node.op, ast.Div) else a // b
        simple = {ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b}
        if type(node.op) not in simple or max(abs(a), abs(b)) > 1e12:
            raise ValueError
        return simple[type(node.op)]()


def _numeric(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    return value


def _script(path: str, module: ast.Module, text: str) -> Script:
    modules: dict[str, str] = {}
    sources: dict[str, tuple[str, frozenset[str]]] = {}
    for node in _statements(module.body, _BLOCKS):  # what functions define is their own
        for name in _defined(node):
            segment = ast.get_source_segment(text, node) or ""
            indent = " " * node.col_offset
            source = textwrap.dedent(indent + segment)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
                first = min(each.lineno for each in node.decorator_list)
                source = textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
            used = frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name)) - {name}
            sources.setdefault(name, (source, used))
            modules.setdefault(name, (node.module or "") if isinstance(node, ast.ImportFrom) else "")
    return Script(path, modules, any(map(_trains, module.body)), sources)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [name for name, _ in _assignments(node)]


def _trains(node: ast.stmt) -> bool:
    """Whether a statement of a module trains when the module is imported."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(node, ast.If) and any(_name(part) == "__name__" for part in ast.walk(node.test)):
        return False
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(_name(call.func) in (*TRAINERS, "train", "main") for call in calls)


def _assignments(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    names = [
        part.id
        for target in node.targets
        for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
        if isinstance(part, ast.Name)
    ]
    return [(name, node.value) for name in names]


def _statements(body: list[ast.stmt], within: tuple[type[ast.stmt], ...]) -> Iterator[ast.stmt]:
    """Statements of a module, with those inside of these, in order."""
    for node in body:
        yield node
        if isinstance(node, within):
            parts = (getattr(node, part, []) for part in ("body", "orelse", "finalbody"))
            yield from _statements([inner for part in parts for inner in part], within)


def _name(node: ast.AST) -> str:
    """The last name of a dotted one."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
