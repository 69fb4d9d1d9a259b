"""Answers to mathematical questions as models write them, with the verdict that follows from how each was made.

``cases()`` is the same list every time. A value is drawn first, then written in a way that keeps it (right) or that
names another one, or one more (wrong); nothing here computes what an answer means. Hostile ones have no verdict: they
may be called wrong or left ungraded, and must not be called right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

AROUND = (
    "{}",
    "So the answer is ${}$.",
    "First, 2 + 2 = 4 and 3 \\cdot 7 = 21.\n\n\\[{}\\]",
    "**Final answer**\n\n$${}$$\n",
    "We try $x = 11$, which fails. Therefore {} is what we want.",
    "Step 1: $\\frac{{7}}{{9}}$ of 18 is 14.\nStep 2: done.\nThe final answer is: {}. I hope it is correct.",
)
NOT_SO = ("no wait,", "that is wrong. Again:", "but this forgets a case, and so", "Let me check.\n\nActually", "Hmm,")
OR = (" or ", "\\text{ or }", "\\text{ or maybe }", ", ", "; ", " \\lor ", " \\vee ", "\\text{ and }", " and ", "\\\\ ")
OR += (" \\quad ", " \\text{ or possibly } ", ",\\; ", " \\quad\\text{or}\\quad ", "\\mbox{ or }", " \\textbf{or} ")
UNITS = (
    "\\text{ apples}",
    "\\text{ cm}",
    "\\text{cm}^2",
    "\\,\\mathrm{m/s}",
    "\\ \\text{square units}",
    " \\text{ hours}",
)
UNITS += (
    " cm",
    " \\mathrm{kg}\\cdot\\mathrm{m}/\\mathrm{s}^2",
    "^\\circ",
    "\\text{ miles per hour}",
    " \\text{ km}^{3}",
)


@dataclass(frozen=True)
class Case:
    """One answer of a model to a task.

    Attributes:
        family: what is tried.
        answer: the task's.
        completion: the model's.
        right: the verdict; None where any but "right" will do.
    """

    family: str
    answer: str
    completion: str
    right: bool | None


def cases() -> list[Case]:
    """All of them, family by family, each once."""
    found = [case for name, family in FAMILIES.items() for case in _named(name, family)]
    return list(dict.fromkeys(found))


Drawn = Iterator[tuple[str, str, bool | None]]


def _named(name: str, family: Callable[[random.Random], Drawn]) -> Iterator[Case]:
    for answer, completion, right in family(random.Random(f"maths {name}")):
        yield Case(name, answer, completion, right)


def box(inside: str) -> str:
    return f"\\boxed{{{inside}}}"


def around(draw: random.Random, inside: str) -> str:
    return draw.choice(AROUND).format(inside)


# Ways to write a value -----------------------------------------------------------------------------------------------


def ways(value: Fraction) -> list[str]:
    """The value, written as a formula; the simplest first."""
    n, d = value.numerator, value.denominator
    sign = "-" if n < 0 else ""
    if d == 1:
        return [f"{n}", f"{n}.0", f"{n + 7} - 7", f"\\frac{{{3 * n}}}{{3}}", f"{sign}\\sqrt{{{n * n}}}", f"{{{n}}}"]
    written = [f"{sign}\\frac{{{abs(n)}}}{{{d}}}", f"{sign}\\dfrac{{{abs(n)}}}{{{d}}}", f"{n}/{d}"]
    written += [f"\\frac{{{2 * n}}}{{{2 * d}}}", f"{sign}{abs(n)} \\div {d}", f"{n} \\cdot {d}^{{-1}}"]
    if 10**6 % d == 0:
        written.append(f"{float(value)}")
    return written


def simple(value: Fraction) -> str:
    return ways(value)[0]


def a_value(draw: random.Random) -> Fraction:
    return Fraction(draw.choice((1, 1, 1, -1)) * draw.randint(2, 60), draw.choice((1, 1, 1, 2, 3, 4, 5, 7, 8)))


def values(draw: random.Random, count: int) -> list[Fraction]:
    """Different ones."""
    drawn: list[Fraction] = []
    while len(drawn) < count:
        value = a_value(draw)
        if value not in drawn:
            drawn.append(value)
    return drawn


# Families ------------------------------------------------------------------------------------------------------------


def one_value(draw: random.Random) -> Drawn:
    for _ in range(100):
        value, other = values(draw, 2)
        yield simple(value), around(draw, box(draw.choice(ways(value)))), True
        yield simple(value), around(draw, f"{simple(value)} is near, but {box(draw.choice(ways(other)))}"), False


def several_boxes(draw: random.Random) -> Drawn:
    for _ in range(60):
        value, other = values(draw, 2)
        corrected = f"First {box(simple(other))}, {draw.choice(NOT_SO)} {box(simple(value))}"
        yield simple(value), corrected, True
        yield simple(other), corrected, False
        yield f"{simple(value)}, {simple(other)}", corrected, False
    for _ in range(40):
        value, other = values(draw, 2)
        joiner = draw.choice((" or ", " and ", ", ", "; ", "$ or $", "$, $", " \\text{ or } ", ", and "))
        joined = f"${box(simple(value))}{joiner}{box(simple(other))}$"
        yield simple(value), joined, False
        yield simple(other), joined, False
        yield f"{simple(value)}, {simple(other)}", joined, True
    for _ in range(15):
        value, other = values(draw, 2)
        yield simple(value), box(f"{simple(other)} \\text{{ or }} {box(simple(value))}"), False
        yield simple(value), box(box(simple(value))), True
        yield simple(value), f"{box(simple(value))} and then \\boxed{{{simple(other)}", False


def chains(draw: random.Random) -> Drawn:
    for _ in range(45):
        value, other, third = values(draw, 3)
        again = draw.sample(ways(value), 3)
        label = draw.choice(("x", "n", "f(2)", "|AB|", "a + b", "S_{10}", "\\text{Area}", "P(A)", "\\angle ABC", "AB"))
        yield simple(value), around(draw, box(f"{label} = {again[0]}")), True
        yield simple(value), around(draw, box(f"{label} = {' = '.join(again)}")), True
        yield simple(value), around(draw, box(" = ".join(again))), True
        yield simple(value), around(draw, box(f"{label} = {simple(other)} = {again[0]}")), False
        yield simple(value), around(draw, box(f"{simple(other)} = {simple(third)} = {simple(value)}")), False
        yield simple(value), around(draw, box(f"{simple(value)} = {label} = {simple(other)}")), False
        yield simple(value), around(draw, box(f"{simple(other)} = {simple(value)}")), False
        yield simple(value), around(draw, box(f"{simple(value)} = {simple(other)}")), False
    for letter in "ABCDE":
        yield letter, box("A=B=C=D=E"), False
        yield letter, box("=".join(other for other in "ABCDE" if other != letter) + f"={letter}"), False
        yield letter, box(f"x = A = {letter}" if letter != "A" else "x = B = A"), False
    for step in range(10):
        yield str(step + 3), box("=".join(map(str, range(1, step + 4)))), False


def approximations(draw: random.Random) -> Drawn:
    for n in range(2, 40):
        root = n**0.5
        if root == int(root):
            continue
        answer = f"\\sqrt{{{n}}}"
        yield answer, box(f"{answer} \\approx {root:.3f}"), True
        yield answer, box(f"x = {answer} \\approx {root:.2f}"), True
        yield answer, box(f"{answer} \\approx {root + 0.1:.3f}"), False
        yield answer, box(f"{n} \\approx {answer}"), False
        yield answer, box(f"{root:.2f}"), False
    for _ in range(20):
        value, other = values(draw, 2)
        yield simple(value), box(f"{simple(value)} \\approx {simple(other)}"), False
        yield simple(value), box(f"{simple(other)} \\approx {simple(value)}"), False


def alternatives(draw: random.Random) -> Drawn:
    for separator in OR:
        for _ in range(9):
            value, other = values(draw, 2)
            pair = [simple(value), simple(other)]
            draw.shuffle(pair)
            yield simple(value), around(draw, box(separator.join(pair))), False
            yield simple(value), around(draw, box(f"x = {pair[0]}{separator}x = {pair[1]}")), False
        value = a_value(draw)
        yield simple(value), box(separator.join(draw.sample(ways(value)[:3], 2))), True
    for _ in range(12):
        value, other = values(draw, 2)
        a, b = simple(value), simple(other)
        for written in (
            f"{a} \\text{{ (or {b})}}",
            f"{a} (or {b})",
            f"{a} (\\text{{or }} {b})",
            f"\\text{{{a} (or {b})}}",
            f"{a} / {b} \\text{{ or }} {b} / {a}",
            f"\\text{{either }} {a} \\text{{ or }} {b}",
            f"{b} \\to {a}",
            f"{b} \\Rightarrow {a}",
            f"{b} \\mid {a}",
            f"{b} @ {a}",
            f"{a} \\neq {b}",
            f"\\{{{a}, {b}\\}}",
            f"({a}, {b})",
            f"[{a}, {b}]",
            f"x \\in \\{{{a}, {b}\\}}",
            f"\\text{{not }} {a}",
            f"\\text{{minus }} {a}",
            f"\\leq {a}",
            f"\\pm {a}",
        ):
            yield a, around(draw, box(written)), False


def units(draw: random.Random) -> Drawn:
    for unit in UNITS:
        for _ in range(6):
            value, other = (Fraction(draw.randint(2, 30)), Fraction(draw.randint(31, 60)))
            yield simple(value), around(draw, box(f"{simple(value)}{unit}")), True
            yield simple(value), around(draw, box(f"x = {simple(value)}{unit}")), True
            yield simple(value), around(draw, box(f"{simple(other)}{unit}")), False
            yield simple(value), around(draw, box(f"{simple(value)}{unit}, {simple(other)}{unit}")), False
            yield f"{simple(value)} \\text{{ cm}}", box(f"{simple(value)}{unit}"), True
        yield f"3 {UNITS[0]}, 4 {UNITS[1]}", box(f"3{unit}, 4{unit}"), True
        yield f"3 {UNITS[0]}, 4 {UNITS[1]}", box(f"3{unit}"), False
    for _ in range(15):
        n = draw.randint(2, 40)
        for word, factor in (("hundred", 100), ("thousand", 1000), ("million", 10**6), ("dozen", 12)):
            yield str(n), box(f"{n} \\text{{ {word}}}"), False
            yield str(n * factor), box(f"{n} \\text{{ {word}}}"), True
        for words in ("squared", "or more", "minus one", "times two", "factorial", "and a half", "less than x"):
            yield str(n), box(f"{n} \\text{{ {words}}}"), False
        yield str(n), box(f"\\${n}"), True
        yield str(n), box(f"\\${n}.00"), True
        yield str(n), box(f"{n} \\text{{apples}}, {n + 1} \\text{{pears}}"), False
    yield "2m", box("2"), False
    yield "3ab", box("3"), False
    yield "2m", box("2m"), True
    yield "5", box("5x"), False


def percentages(draw: random.Random) -> Drawn:
    for _ in range(30):
        n = draw.randint(2, 99)
        other = n % 98 + 1 if n % 98 + 1 != n else n + 1
        for sign in ("\\%", "\\text{ percent}", " percent"):
            yield f"{n}\\%", box(f"{n}{sign}"), True
            yield f"{n}\\%", box(f"{other}{sign}"), False
        yield f"{n}\\%", box(f"{Fraction(n, 100)}"), True
        yield f"{n / 100}", box(f"{n}\\%"), True
        yield f"{n}\\%", box(f"{n}\\%, {other}\\%"), False
        yield f"\\frac{{{n}}}{{100}}", box(f"{n / 100} = {n}\\%"), True
        yield f"\\frac{{{n}}}{{100}}", box(f"{n / 100} = {other}\\%"), False
        yield f"{n}", box(f"{n}00\\%\\text{{ or }}{other}\\%"), False


def mixed_fractions(draw: random.Random) -> Drawn:
    for _ in range(40):
        whole, d = draw.randint(1, 12), draw.randint(2, 9)
        n = draw.randint(1, d - 1)
        value = whole + Fraction(n, d)
        answer = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        for written in (f"{whole} \\frac{{{n}}}{{{d}}}", f"{whole}\\frac{n}{d}", f"{whole} {n}/{d}"):
            yield answer, around(draw, box(written)), True
            yield answer, around(draw, box(f"-{written}")), False
            yield str(whole), around(draw, box(written)), False
        yield answer, box(f"{whole}\\tfrac{{{n}}}{{{d}}}"), True
        yield answer, box(f"{whole + 1}\\frac{{{n}}}{{{d}}}"), False
        yield f"{whole}\\frac{{{n}}}{{{d}}}", box(answer), True
        # Not of mixed form: a product.
        yield str(whole + n), box(f"{whole}\\frac{{{n * d}}}{{{d}}}"), whole + n == whole * n


def side_by_side(draw: random.Random) -> Drawn:
    for _ in range(15):
        a, b = draw.randint(2, 9), draw.randint(11, 30)
        for written in (
            f"{a} {b}",
            f"{a}\\ {b}",
            f"{a}\\quad {b}",
            f"{a}' {b}''",
            f"{{{a}}}{{{b}}}",
            f"\\phantom{{{a}}}{b}",
        ):
            for answer in (a, b, a + b):
                yield str(answer), box(written), False
        for written in (
            f"{a}({b})",
            f"({a})({b})",
            f"({a}){b}",
            f"\\frac{{{2 * a}}}{{2}} {b}",
            f"\\lfloor {a} \\rfloor {b}",
        ):
            yield str(a * b), box(written), True
            for answer in (a, b, a + b):
                yield str(answer), box(written), False


def sets(draw: random.Random) -> Drawn:
    for _ in range(25):
        *two, third = values(draw, 3)
        a, b, c = map(simple, (*two, third))
        for answer in (f"\\{{{a}, {b}\\}}", f"{a}, {b}", f"x = {a} \\text{{ or }} x = {b}"):
            again = [draw.choice(ways(value)[:3]) for value in two]
            draw.shuffle(again)
            p, q = again
            right = (
                f"\\{{{p}, {q}\\}}",
                f"{p}, {q}",
                f"{p} \\text{{ and }} {q}",
                f"x = {p}, x = {q}",
                f"x = {p} \\lor x = {q}",
            )
            wrong = (
                a,
                b,
                f"\\{{{a}\\}}",
                f"{a}, {b}, {c}",
                f"{a}, {c}",
                f"{a} = {b}, {b} = {a}",
                f"x = {c} = {a}, x = {b}",
            )
            yield answer, around(draw, box(draw.choice(right))), True
            yield answer, around(draw, box(draw.choice(right))), True
            yield answer, around(draw, box(draw.choice(wrong))), False
            yield answer, around(draw, box(draw.choice(wrong))), False
        yield f"\\{{{a}, {b}\\}}", box(f"\\{{{a}, {b}\\}} \\text{{ or }} \\{{{a}, {c}\\}}"), False
        yield f"\\{{{a}, {b}\\}}", box(f"S = \\{{{a}, {c}\\}} = \\{{{a}, {b}\\}}"), False
        yield f"\\{{{a}, {b}\\}}", box(f"S = \\{{{a}, {b}\\}}"), True


def tuples(draw: random.Random) -> Drawn:
    for _ in range(30):
        a, b, c = map(simple, values(draw, 3))
        for answer in (f"({a}, {b})", f"(x, y) = ({a}, {b})"):
            yield answer, around(draw, box(f"({a}, {b})")), True
            yield answer, around(draw, box(f"\\left({a}, {b}\\right)")), True
            yield answer, around(draw, box(f"({b}, {a})")), False
            yield answer, around(draw, box(f"({a}, {c})")), False
            yield answer, around(draw, box(f"({a}, {b}) \\text{{ or }} ({b}, {a})")), False
        yield f"({a}, {b}, {c})", around(draw, box(f"({a}, {b}, {c})")), True
        yield f"({a}, {b}, {c})", around(draw, box(f"({a}, {c}, {b})")), False
        yield f"({a}, {b})", box(f"\\{{{a}, {b}\\}}"), False
        yield f"\\{{{a}, {b}\\}}", box(f"({a}, {b})"), False
        yield f"x = {a}, y = {b}", box(f"y = {b}, x = {a}"), True
        yield f"x = {a}, y = {b}", box(f"{a}, {b}"), True
        yield f"x = {a}, y = {b}", box(f"({a}, {b})"), True
        yield f"x = {a}, y = {b}", box(f"x = {b}, y = {a}"), False
        yield f"x = {a}, y = {b}", box(f"({b}, {a})"), False
        yield f"x = {a}, y = {b}", box(f"{b}, {a}"), False
        yield f"({a}, {b}), ({b}, {c})", box(f"({b}, {c}), ({a}, {b})"), True
        yield f"({a}, {b}), ({b}, {c})", box(f"({a}, {b})"), False
    matrix = "\\begin{{pmatrix}}{}&{}\\\\{}&{}\\end{{pmatrix}}"
    for _ in range(15):
        four = [draw.randint(-9, 9) for _ in range(4)]
        yield matrix.format(*four), box(matrix.format(*four).replace("pmatrix", "bmatrix")), True
        yield matrix.format(*four), box(matrix.format(*four[:3], four[3] + 1)), False


def intervals(draw: random.Random) -> Drawn:
    for _ in range(40):
        low, high = sorted(values(draw, 2))
        a, b, later = simple(low), simple(high), simple(high + 1)
        left, right = draw.choice("(["), draw.choice(")]")
        answer = f"{left}{a}, {b}{right}"
        yield answer, around(draw, box(answer)), True
        yield answer, around(draw, box(f"\\left{left}{a}, {b}\\right{right}")), True
        yield answer, around(draw, box(f"x \\in {answer}")), True
        yield answer, around(draw, box(f"{'[' if left == '(' else '('}{a}, {b}{right}")), False
        yield answer, around(draw, box(f"{left}{a}, {later}{right}")), False
        yield answer, around(draw, box(f"{answer} \\text{{ or }} [0, 1000]")), False
        yield answer, around(draw, box(f"{answer} \\cup [200, 300]")), False
        yield f"{a} < x < {b}", box(f"({a}, {b})"), True
        yield f"{a} < x < {b}", box(f"[{a}, {b}]"), False
        yield f"x > {b}", box(f"({b}, \\infty)"), True
        yield f"x > {b}", box(f"{b} < x"), True
        yield f"x > {b}", box(f"x \\geq {b}"), False
        yield f"x > {b}", box(f"x > {a}"), False
        yield a, box(f"x > {a}"), False
        yield f"({a}, {b}) \\cup ({later}, \\infty)", box(f"({a}, {b}) \\cup ({later}, +\\infty)"), True
        yield f"({a}, {b}) \\cup ({later}, \\infty)", box(f"({a}, {b})"), False


def numbers(draw: random.Random) -> Drawn:
    for _ in range(25):
        n = draw.randint(1000, 10**8)
        commas = f"{n:,}"
        for written in (commas, commas.replace(",", "{,}"), commas.replace(",", "\\,"), commas.replace(",", ",\\!")):
            yield str(n), around(draw, box(written)), True
            yield str(n + 1), around(draw, box(written)), False
        yield commas, box(str(n)), True
        yield str(n), f"The answer is {commas}.", True
        yield commas.replace(",", ", "), box(str(n)), False  # a list
    for n in range(20, 50, 2):
        yield f"\\frac{{1}}{{2^{{{n * 3}}}}}", box(f"2^{{-{n * 3}}}"), True
        yield f"\\frac{{1}}{{2^{{{n * 3}}}}}", box(f"\\frac{{1}}{{2^{{{n * 3 - 1}}}}}"), False
        yield f"\\frac{{1}}{{{n}!}}", box(f"\\frac{{1}}{{{n + 1}!}}"), False
        yield f"0.00000{n}", box(f"0.00000{n + 1}"), False
        yield f"0.0000001{n}", box("0"), False
        yield f"{n}", box(f"{n}.001"), False
        yield f"{n} \\cdot 10^{{-9}}", box(f"{n + 1} \\cdot 10^{{-9}}"), False
        yield f"{n} \\cdot 10^{{6}}", box(f"{n}000000"), True
        yield f"2^{{{n}}}", box(f"2^{{{n + 1}}}"), False
        yield str(2**n), box(f"2^{{{n}}}"), True
        yield str(2**n), box(f"{2**n + 1}"), False
    yield "512", box("2^3^2"), True
    yield "64", box("2^3^2"), False


def bases(draw: random.Random) -> Drawn:
    for _ in range(30):
        digits = str(draw.randint(1, 4)) + "".join(str(draw.randint(0, 4)) for _ in range(3))
        base = draw.randint(5, 8)
        yield f"{digits}_{base}", box(f"{digits}_{{{base}}}"), True
        yield f"{digits}_{base}", box(f"{digits}_{base + 1}"), False
        yield f"{digits}_{base}", box(f"{digits[:-1]}{(int(digits[-1]) + 1) % 5}_{base}"), False
        yield str(int(digits, base)), box(f"{digits}_{base}"), True
        yield digits, box(f"{digits}_{base}"), False


def formulas(draw: random.Random) -> Drawn:
    for _ in range(35):
        a, b, c = draw.randint(2, 9), draw.randint(2, 9), draw.randint(10, 19)
        answer = f"{a}x + {b}"
        for written in (
            f"{b} + {a}x",
            f"y = {answer}",
            f"f(x) = {answer}",
            f"y = {answer} = {b} + {a} x",
            f"{a}(x + {b}/{a})",
        ):
            yield answer, around(draw, box(written)), True
        wrong = (
            f"{a}x + {c}",
            f"{c}x + {b}",
            f"y = {a}x + {c} = {answer}",
            f"{answer} \\text{{ or }} {a}x",
            str(a),
            str(b),
        )
        for written in (*wrong, f"{answer}, {c}", f"{a}y + {b}", f"({answer}, {c})"):
            yield answer, around(draw, box(written)), False
        yield f"(x+{a})(x-{b})", box(f"x^2 + {a - b}x - {a * b}".replace("+ -", "- ")), True
        yield f"(x+{a})(x-{b})", box(f"(x+{a})(x+{b})"), False
        yield f"y = {answer}", box(answer), True
        yield f"y = {answer}", box(f"y = {a}x - {b}"), False
        yield f"x^2 + y^2 = {c}", box(f"y^2 + x^2 = {c}"), True
        yield f"x^2 + y^2 = {c}", box(f"x^2 + y^2 = {c + 1}"), False
        yield f"{a}\\pi", box(f"\\pi \\cdot {a}"), True
        yield f"{a}\\pi", box(f"{a}"), False
        yield f"{a}\\sqrt{{{b}}}", box(f"\\sqrt{{{a * a * b}}}"), True
        yield f"{a}\\sqrt{{{b}}}", box(f"{a}{b}"), False


def words(draw: random.Random) -> Drawn:
    for letter in "ABCDE":
        other = "ABCDEA"["ABCDE".index(letter) + 1]
        for written in (
            letter,
            f"\\text{{{letter}}}",
            f"\\textbf{{({letter})}}",
            f"({letter})",
            f"\\mathrm{{{letter}}}",
        ):
            yield letter, around(draw, box(written)), True
            yield other, around(draw, box(written)), False
        for written in (
            f"{letter}, {other}",
            f"{letter} \\text{{ or }} {other}",
            f"\\text{{{letter} or {other}}}",
            f"{letter}{other}",
        ):
            yield letter, around(draw, box(written)), False
            yield other, around(draw, box(written)), False
        yield letter, box(f"\\text{{Answer}} = {letter}"), True
        yield letter, box(f"{other} = {letter}"), False
    names = ("Tuesday", "even", "no solution", "Alice", "parallelogram", "Yes")
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        for answer in (name, f"\\text{{{name}}}"):
            yield answer, around(draw, box(f"\\text{{{name}}}")), True
            yield answer, around(draw, box(f"\\text{{{other}}}")), False
            yield answer, around(draw, box(f"\\text{{{name} or {other}}}")), False
            yield answer, around(draw, box(f"\\text{{{name}}}, \\text{{{other}}}")), False


def without_a_box(draw: random.Random) -> Drawn:
    for _ in range(20):
        value, other = values(draw, 2)
        a, b, n = simple(value), simple(other), draw.choice(ways(value)[:2])
        plain, second = str(value), str(other)
        for written in (
            f"The answer is ${n}$.",
            f"Therefore, the final answer is ${n}$. I hope it is correct.",
            f"**Answer:** ${n}$",
            f"The answer is $x = {n}$, since $2 + 2 = 4$.",
            f"We find\n$${n}$$",
            f"The answer is \\({n}\\).",
            f"Answer: {plain}",
            f"so {plain}",
            f"x = {plain}",
            plain,
        ):
            yield a, written, True
            yield b, written, False
        for written in (
            f"The answer is {plain} or {second}.",
            f"The answer is {second} or {plain}",
            f"The answer is {plain}, or maybe {second}.",
            f"The answer is ${a}$ or ${b}$.",
            f"The final answer is ${b}$, ${a}$.",
            f"So it is either {plain} or {second}.",
            f"The answer is {plain} (or {second})",
            f"The answer is not {plain}.",
            f"The answer is ${a}$; ${b}$",
            f"The answer is {plain}. The answer is {second}.",
            f"x = {plain} or x = {second}",
            f"The answer is $x = {b} = {a}$.",
        ):
            yield a, written, False
    for n in range(2, 12):
        yield str(n), f"The answer is {n}x", False
        yield str(n), f"The answer is {n} million.", False
        yield str(n), f"Natalia sold {2 * n} clips and {n} more.\n#### {n}", True
        yield str(3 * n), f"She earns 3 * ${n} = ${3 * n} per day.", True
        yield str(n), f"There are {n} apples left.", True


def dressed(draw: random.Random) -> Drawn:
    for _ in range(10):
        n, m = draw.sample(range(2, 60), 2)
        for written in (
            f"\\text{{The answer is }} {n}",
            f"\\text{{Answer: }} {n}",
            f"\\color{{red}}{{{n}}}",
            f"\\textcolor{{blue}}{{{n}}}",
            f"\\underline{{{n}}}",
            f"\\displaystyle {n}",
            f"\\mathbf{{{n}}}",
            f"\\bm{{{n}}}",
            f"\\left({n}\\right)",
            f"{n} \\quad \\text{{cm}}",
            f"\\; {n}.",
        ):
            yield str(n), around(draw, box(written)), True
            yield str(m), around(draw, box(written)), False


def parts(draw: random.Random) -> Drawn:
    for _ in range(20):
        value, other = values(draw, 2)
        a, b = simple(value), simple(other)
        answer = f"{a}, {b}"
        yield answer, f"There are {box(a)} apples and {box(b)} pears.", True
        yield answer, f"{box(a)}{box(b)}", True
        yield answer, f"{box(a)} for part (a) and {box(b)} for part (b)", True
        yield f"x = {a}, y = {b}", f"$x = {box(a)}$ and $y = {box(b)}$", True
        yield f"x = {a}, y = {b}", f"$x = {box(b)}$ and $y = {box(a)}$", False
        yield answer, f"{box(a)} is not it, and it is rather {box(b)}", False
        yield answer, f"I first thought of {box(a)}. But it must be {box(b)}.", False
        yield a, f"There are {box(b)} apples and {box(a)} pears.", True  # the last one


def written_otherwise(draw: random.Random) -> Drawn:
    """Right, in writings that are rare or that can be read in two ways."""
    for _ in range(5):
        n, m = draw.randint(2, 30), draw.randint(31, 60)
        for written in (
            f"{n} \\text{{ (since }} {n} + 0 = {n})",
            f"2x = {2 * n} \\implies x = {n}",
            f"{n} \\text{{ cm}}^{{\\text{{2}}}}",
            f"{n} widgets",
            f"{n}e0",
            f"{n}^{{\\text{{th}}}}",
            f"x \\to {n}",
            f"\\text{{USD }} {n}",
            f"{n} \\text{{ of the {m}}}",
        ):
            yield str(n), box(written), True
        yield f"{n}.{m}", box(f"{n},{m}"), True  # a decimal comma, or a list
        yield f"{n}.4142", box(f"\\sqrt{{2}} + {n - 1} \\approx {n}.4142"), True
        yield f"\\frac{{{n % 9 + 1}}}{{11}}", box(f"0.\\overline{{{9 * (n % 9 + 1):02d}}}"), True
        yield f"({n}, \\infty)", box(f"x > {n}"), True
        yield str(n), f"I get {n}.\n\nHope this helps! Bye for 2 days.", True
    yield "\\frac{1}{2}", box("\u00bd"), True
    yield "5", box("\\text{five}"), True
    yield "\\text{five}", box("5"), True
    yield "5", box("\\boxed 5"), True
    yield "5", "\\boxed 5", True
    yield "n \\equiv 3 \\pmod 7", box("3 \\pmod 7"), True
    yield "x^2 + C", box("x^2 + K"), True
    yield "a + b", box("$a$ + $b$"), True
    yield "x = 5", box("y = 5"), False
    yield "1, 2, \\ldots, n", box("1, 2, 3, \\ldots, n"), True
    yield "1, 2, \\ldots, n", box("1, 3, \\ldots, n"), False


def hostile(draw: random.Random) -> Drawn:
    for answer in ("5", "\\{3, 5\\}", "x + 1"):
        for deep in (30, 100, 3000):
            yield answer, box("(" * deep + "6" + ")" * deep), None
            yield answer, box("{" * deep + "6" + "}" * deep), None
            yield answer, box("\\frac{" * deep + "6" + "}{1}" * deep), None
            yield answer, box("\\sqrt{" * deep + "6" + "}" * deep), None
        for written in (
            "10^{10^{10}}!",
            "9^{9^{9^{9}}}",
            "9**9**9**9",
            "\\sum_{k=1}^{10^{12}} k^k",
            "\\int_0^1 x^{x^{x}} dx",
            "\\prod_{k=1}^{10^9} k",
            "10^{10^{9}} \\bmod 7",
            "\\binom{10^{20}}{10^{19}}",
            "5\ud800",
            "\x00",
            "5\x00 6",
            "\\text{" * 500,
            "\\left(" * 500,
            "\\begin{matrix}" * 100,
            "\\\\" * 500,
            "|" * 400 + "6" + "|" * 400,
            "\\input{/etc/passwd}",
            "\\write18{ls}",
            "__import__('os').getpid()",
            "5 \\foo 3",
            "\u0665 \u06f6",
            "6" * 9000,
            "6" * 10**6,
            "5 or " * 1900 + "6",
            "1, " * 3000 + "2",
            "5 = " * 60 + "6",
            "\\pm " * 40 + "6",
            "+".join(["\\pm 1"] * 40),
            "%5",
            "\\%",
            "",
            " ",
            "\\frac{5}{0}",
            "\\frac{0}{0}",
            "\\infty - \\infty",
            "\\text{nan}",
        ):
            yield answer, box(written), None
            if draw.random() < 0.3:
                yield answer, f"\\boxed{{{written}", None
        for completion in (
            "\\boxed{" * 100_000,
            "a " * 500_000,
            "$" * 10**6,
            "\\(" * 300_000,
            "answer " * 100_000,
            "answer " + "-" * 5000,
            "answer 6" + " -" * 5000,
            "\\boxed" + " " * 10**6,
            "\\boxed{5}" + "\\boxed{" * 3,
            "\\" * 10**5,
            "{" * 10**6,
            "}" * 10**6 + "\ud83d",
            "9**9**9**9",
        ):
            yield answer, completion, None
    yield "5", "\\boxed{3}" * 100_000 + "\\boxed{5}", True
    yield "5", "\\boxed" + " " * 10**5 + "{5}", True
    yield "5", "\ud800 is no letter, \\boxed{5}", True


FAMILIES: dict[str, Callable[[random.Random], Drawn]] = {
    family.__name__: family
    for family in (
        one_value,
        several_boxes,
        chains,
        approximations,
        alternatives,
        units,
        percentages,
        mixed_fractions,
        side_by_side,
        sets,
        tuples,
        intervals,
        numbers,
        bases,
        formulas,
        words,
        dressed,
        parts,
        without_a_box,
        written_otherwise,
        hostile,
    )
}


def sample(found: Sequence[Case], every: int) -> list[Case]:
    """Each so many-th case of every family."""
    return [case for name in FAMILIES for case in [case for case in found if case.family == name][::every]]
