"""The calculator computes what it is asked, and nothing else, quickly; calls stand in the text or are tool calls."""

import json

import pytest
from fake_task import FakeTask

from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Task
from lyceum.environment._notation import Notation
from lyceum.environment.calculator import MOST_CALLS, Calculator
from lyceum.utils.aio import run_async

TAGS = Notation(begin="<c>", end="</c>", before="[", after="]")
ERROR = "error"


class Letters(FakeTask):
    """One token per character."""

    def encode_after(self, path, text):
        return list(map(ord, text))


def stepped(settings: Calculator, said: str, state=None):
    environment = settings.build()
    turn = Node(None, [1], 0)
    return run_async(environment.step(state or environment.reset(Task("t", ())), turn, said, Letters()))


def answer(settings: Calculator, said: str, state=None) -> str:
    return "".join(map(chr, stepped(settings, said, state).tokens))


VALUES = {
    "37+8": "45",
    "2*(3-5)": "-4",
    "1/3": "0.3333333333",
    "-5//2": "-3",
    "-7%100": "93",
    "2**10": "1024",
    "2**-3": "0.125",
    "7.25*2": "14.5",
    "0.1+0.2": "0.3",
    " 8 - 3 ": "5",
    "9" * 30: "9" * 30,
}
HOSTILE = [
    *("9**9**9", "10**10**8", "9**-9**9", "9**99**99**99", "2**0.5", "1/0", "0**-1", "9" * 31),
    *("__import__('os').system('x')", "True", "'a'*9", "[1]*9", "x:=1", "1if 1else 2", "8(3)"),
    *("(" * 5000 + "1" + ")" * 5000, "(" * 199, "-" * 200, "1" * 1_000_000),
    *("", "()", "1 2", "1_000", "0x10", "1e9", "1j", "²", "\0"),
]


def test_values_are_exact():
    compute = Calculator().build().compute
    assert {asked: compute(asked) for asked in VALUES} == VALUES


@pytest.mark.timeout(20)
def test_whatever_is_asked_comes_back_as_an_error_at_once():
    compute = Calculator().build().compute
    assert [asked[:99] for asked in HOSTILE * 100 if not compute(asked).startswith(ERROR)] == []


def test_results_may_be_modulo_a_number_as_tasks_count():
    assert [Calculator(modulus=100).build().compute(asked) for asked in ("97+8", "3-7", "1/2")] == ["5", "96", "0.5"]


def test_an_equals_sign_asks_for_what_stands_before_it_earlier_results_included():
    calculator = Calculator()
    first = stepped(calculator, "37+8=")
    assert ("".join(map(chr, first.tokens)), first.calls, first.failed, first.end) == ("45", 1, 0, False)
    assert answer(calculator, "-2=", first.state) == "43"
    # 45 is corrected by the policy: 45!55-2 asks for 55-2.
    assert answer(calculator, "!55-2=", first.state) == "53"
    assert answer(calculator, "so 3*4=") == "12"
    assert stepped(calculator, "-2#43", first.state).end
    assert first.state == calculator.build().replay(Task("t", ()), [Exchange("37+8=", "45")]), "as where it stands"


def test_tags_mark_calls_and_answers_and_text_outside_them_asks_nothing():
    calculator = Calculator(notation=TAGS)
    assert calculator.stops == ("</c>",)
    assert answer(calculator, "I need <c>8*(3+1)</c>") == "[32]"
    assert answer(calculator, "<c>eight</c>").startswith("[error: ")
    for said in ("8*3=24", "8*3</c>", "<c>8*3"):
        assert stepped(calculator, said).end


def called(**call) -> str:
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def test_tool_calls_are_answered_by_messages_one_each():
    calculator = Calculator(notation=None, failed_reward=-0.5)
    assert calculator.stops == ()
    assert calculator.tools[0]["function"]["name"] == "calculator"
    right = called(name="calculator", arguments={"expression": "8*3"})
    wrong = [
        called(name="python", arguments={"expression": "1"}),
        called(name="calculator", arguments={"code": "1"}),
        called(name="calculator", arguments={"expression": 3}),
        "<tool_call>8*3</tool_call>",
        "<tool_call>" + "[" * 10_000 + "</tool_call>",
    ]
    seen = stepped(calculator, f"Well. {right}{''.join(wrong)}")
    assert [message["role"] for message in seen.messages] == ["tool"] * 6
    assert seen.messages[0]["content"] == "24"
    assert all(message["content"].startswith(ERROR) for message in seen.messages[1:])
    assert (seen.calls, seen.failed, seen.reward, seen.tokens) == (6, 5, -2.5, ())
    assert stepped(calculator, "The answer is 24.").end
    many = stepped(calculator, right * 100)
    assert (len(many.messages), many.failed) == (MOST_CALLS + 1, 1)


def test_the_state_is_named_by_the_calls_made_and_the_last_result():
    # 3+4 and 6+1 lead to the same state; what was asked before it does not matter, how often does.
    calculator = Calculator()
    states = [stepped(calculator, said) for said in ("3+4=", "6+1=", "6+2=")]
    assert [seen.key for seen in states] == ["1:7", "1:7", "1:8"]
    assert stepped(calculator, "+0=", states[0].state).key == "2:7"
