"""The judge: runs the tests against programs that are in other processes, and says what passed."""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import faulthandler
import importlib
import json
import os
import signal
import struct
import sys
import time
import types

from .data import NOTE, Ended, Limit, Reference, Unsupported, Untrusted, decode, read_exactly, receive, send
from .program import describe, program_process
from .rights import LINUX, drop_capabilities, end_with_parent, give_up_rights, hide_memory

MOST_REPLY = 1 << 20
"""Maximum bytes of one reply of a program."""
OPEN_FILES = 64
"""Maximum open files of a process."""
HANGS_SECONDS = 2
"""After the wall-clock limit, until a judge ends that does not come to see it: it is in a computation in C."""
IMPORTS = (ast.Import, ast.ImportFrom)
_COMPUTING = (
    "array ast base64 binascii bisect cmath collections datetime difflib fractions functools hashlib heapq itertools "
    "json math numbers operator re statistics string struct textwrap unicodedata"
)
COMPUTING = frozenset(_COMPUTING.split())
"""Standard modules that only compute. Of one with a state, such as random, a program has to have the tests' own."""


def main() -> None:
    settings = json.loads(sys.argv[1])
    sys.argv[1:] = []
    sys.path.pop()
    end_with_parent()
    hide_memory()
    if LINUX and settings["confine"]:
        drop_capabilities()
    count, size = struct.unpack(">II", read_exactly(0, 8))
    programs = [start_program(settings, number) for number in range(count)]
    # A test may print; descriptor 1 is for the verdict.
    sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    own = {**settings, "cpu_seconds": own_cpu_seconds(settings, count), "open_files": OPEN_FILES + 3 * count}
    # Scope 1: the signal with which the kernel ends the programs after the judge comes from the judge.
    give_up_rights(own, scopes=1, ends=[program.pid for program in programs])
    os.write(1, b"ready\n")
    job = json.loads(read_exactly(0, size))
    each = len(job["pairs"] or "1")
    parts = [programs[place : place + each] for place in range(0, count, each)]
    sent = json.dumps([judge(*pair, job, settings) for pair in zip(job["programs"], parts, strict=True)]).encode()
    while sent:
        sent = sent[os.write(1, sent) :]
    os._exit(0)


def own_cpu_seconds(settings: dict, count: int) -> int:
    """The judge's own limit. What ends it first has to be its programs' wall-clock time, in which it may compute."""
    return int(max(settings["cpu_seconds"], settings["seconds"]) + HANGS_SECONDS + 2) * count + 10


def judge(code: str, processes: list, job: dict, settings: dict) -> dict:
    """The verdict on one program, which has a process for its tests, or one for each pair of input and output."""
    verdict: dict = {
        "tests": [],  # passed, one by one
        "note": None,  # on the first that is not
        "ran": True,  # whether the program could be run at all, before its tests
        "limit": None,  # that the program exceeded
        "unsupported": None,  # why these tests cannot judge
        "killed": False,  # by a signal that only the machine sends
        "seconds": 0.0,  # of the program's CPU
        "operations": None,  # Python instructions of the program, where they can be counted
        "printed": "",  # where it is run for what it prints
    }
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, settings["seconds"], 0.25)
    # Its thread is C alone: it says "Timeout" in place of the verdicts, and ends this process.
    faulthandler.dump_traceback_later(settings["seconds"] + HANGS_SECONDS, exit=True, file=1)
    try:
        try:
            if job["kept"] is not None:
                keep_printed(code, processes[0], job, verdict)
            elif job["pairs"] is None:
                judge_tests(code, processes[0], job, verdict)
            else:
                judge_pairs(code, processes, job, verdict)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if job["kept"] is not None or not all(verdict["tests"]):
            note_endings(processes, settings["cpu_seconds"], verdict, wait=0.0 if job["tests"] else 0.1)
    except Limit as reached:
        verdict["limit"] = str(reached)
    except Unsupported as why:
        verdict["unsupported"] = str(why)
    except Ended:
        note_endings(processes, settings["cpu_seconds"], verdict, wait=0.2)
        verdict["note"] = verdict["note"] or "the program ended before its tests did"
    except BaseException as error:
        # What the program answered made the judge fail. That leaves neither it ungraded nor those after it.
        verdict["tests"] = [False] * len(verdict["tests"])
        verdict["note"] = verdict["note"] or f"an answer cannot be judged: {describe(error)}"
    for program in processes:
        program.end()
    faulthandler.cancel_dump_traceback_later()
    # Lone surrogates cannot be sent.
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in verdict.items()
    }


def start_program(settings: dict, number: int) -> JudgedProcess:
    """A process that waits for its program, with a folder of its own."""
    commands_there, commands = os.pipe()
    replies, replies_there = os.pipe()
    output, output_there = os.pipe()
    judge = os.getpid()
    pid = os.fork()
    if pid:
        for handle in (commands_there, replies_there, output_there):
            os.close(handle)
        return JudgedProcess(pid, commands, replies, output)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        kept = [os.dup(handle) for handle in (commands_there, replies_there, output_there)]
        for place in (0, 1, 2):
            os.dup2(nothing, place)
        for place, handle in enumerate(kept, 3):  # 4 and 5 are the judge's ends, which are closed by this
            os.dup2(handle, place, inheritable=False)
        os.closerange(6, 4096)
        end_with_parent()
        if os.getppid() != judge:
            os._exit(1)
        *devices, folder = settings["writable"]
        if settings["own_folder"]:
            folder = f"{folder}/{number}"
            os.mkdir(folder)
            os.chdir(folder)
        give_up_rights({**settings, "writable": [*devices, folder], "open_files": OPEN_FILES}, scopes=3)
        program_process(3, 4, 5)
    finally:
        os._exit(1)


class JudgedProcess:
    """The judge's side of one program process."""

    def __init__(self, pid, commands, replies, output):
        self.pid, self.commands, self.replies, self.output = pid, commands, replies, output
        self.operations = 0
        self.metered = self.ended = False

    def exchange(self, message):
        try:
            send(self.commands, message)
            reply = receive(self.replies, MOST_REPLY)
            return reply if isinstance(reply, dict) else {"error": "a reply is malformed"}
        except (EOFError, BrokenPipeError):
            raise Ended from None
        except Exception:  # whatever reading a reply raises that no honest program sends
            return {"error": "a reply is malformed"}

    def ask(self, message, arguments=()):
        reply = self.exchange(message)
        if "error" in reply:
            kind = getattr(builtins, str(reply.get("type")), None)
            text, error = str(reply["error"])[:NOTE], None
            # Not what ends a loop of the tests: with StopIteration from a program, all(map(...)) is true.
            ends = (AssertionError, StopIteration, StopAsyncIteration)
            if isinstance(kind, type) and issubclass(kind, Exception) and kind not in ends:
                with contextlib.suppress(TypeError):  # UnicodeDecodeError takes five arguments
                    error = kind(text)
            raise ProgramError(text) if error is None else error
        operations = reply.get("operations", 0)
        self.operations += operations if type(operations) is int and 0 < operations < 1 << 53 else 0
        try:
            value = decode(reply.get("value"), self.reference)
            changed = reply.get("arguments")
            if changed is not None:
                put_back(arguments, decode(changed, self.reference))
            return value
        except Exception:
            raise ProgramError("a reply is malformed") from None

    def reference(self, number):
        return Reference(self, number)

    def named(self, names):
        """The program's objects of these names, those that it has."""
        found = {}
        for name in sorted(names):
            reply = self.exchange({"op": "get", "name": name})
            if "value" in reply:
                with contextlib.suppress(Exception, Untrusted):  # the name is then missing
                    found[name] = decode(reply["value"], self.reference)
        return found

    def ending(self, wait):
        """Its status and what it used; (0, None) where it lives."""
        deadline = time.monotonic() + wait  # its pipes close a moment before it can be waited for
        while not self.ended:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.ended = True
                return status, used
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        return 0, None

    def end(self):
        """End it, whatever it does; its pid is its own until it is waited for."""
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.ended = True

    def cpu_seconds(self):
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:  # it has ended
            return 0.0


class ProgramError(Exception):
    """The program raised an error of its own class."""


def put_back(arguments, changed):
    """Lists, dicts and sets that the program changed in place."""
    for mine, new in zip(arguments, changed, strict=True):
        if type(mine) is not type(new):
            continue
        if isinstance(mine, list):
            mine[:] = new
        elif isinstance(mine, (dict, set)):
            mine.clear()
            mine.update(new)


def on_alarm(number, frame):
    raise Limit("wall-clock time")


def judge_tests(code: str, program: JudgedProcess, job: dict, verdict: dict) -> None:
    """Run the tests in this process; their free names are the program's."""
    groups, tests = read_tests(job)
    verdict["tests"] = [False] * sum(tests)
    reply = program.exchange({"code": code, "stdin": None})
    if reply.get("error") is not None:
        verdict["note"], verdict["ran"] = str(reply["error"])[:NOTE], False
        return
    program.metered = job["metered"] and meterable(code)
    free = free_names(groups)
    helpers = names_of(job["head"], groups, free)
    own = {**modules_of(groups, free - helpers.keys()), **helpers}
    while True:
        names = {"__name__": "tests", "__builtins__": builtins, **program.named(free - own.keys()), **own}
        try:
            run_tests(groups, tests, names, verdict)
            break
        except Unsupported as why:
            # An object that the judge's own names made is passed to the program, which has to make it itself. Only the
            # tests bring this about, by what they pass: a program cannot have its names taken so.
            taken = names_behind(why.passed, own, helpers.keys())
            if not taken:
                raise
            own = {name: value for name, value in own.items() if name not in taken}
            program.operations = 0
    verdict["seconds"] = program.cpu_seconds()
    verdict["operations"] = program.operations if program.metered else None


def run_tests(groups: list, tests: list, names: dict, verdict: dict) -> None:
    """Which tests pass, from the first; and a note on the first that does not."""
    verdict["tests"], verdict["note"], place = [False] * sum(tests), None, 0
    for group, counts in zip(groups, tests, strict=True):
        note = fault_of(group, names)
        if note is not None and verdict["note"] is None:
            verdict["note"] = f"{ast.unparse(group[-1])[:NOTE]}: {note}"
        if counts:
            verdict["tests"][place] = note is None
            place += 1


def names_behind(passed: object, own: dict, helpers) -> set:
    """Which of the judge's names made an object: its module's, else those that the task's head defines."""
    homes = {home_of(passed), home_of(type(passed))} & (COMPUTING | {"head"})
    if not homes:
        return set()
    return {name for name, value in own.items() if home_of(value) in homes} or helpers & own.keys()


def home_of(value: object) -> str:
    """The module that something is defined in."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0].lstrip("_")


def read_tests(job: dict) -> tuple[list, list]:
    """The statements that are run together, and which of these groups are tests."""
    try:
        groups = [ast.parse(text).body for text in job["tests"]]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unsupported(f"the tests are no Python: {describe(error)}") from None
    if job["script"]:
        groups = [[statement] for group in groups for statement in group]
    silent = (*IMPORTS, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign)
    tests = [not all(isinstance(statement, silent) for statement in group) for group in groups]
    if not any(tests):
        raise Unsupported("there is no test")
    return groups, tests


def fault_of(group: list, names: dict) -> str | None:
    """What goes wrong when these statements of the tests are run; None where nothing does."""
    try:
        exec(compile(ast.Module(group, []), "<tests>", "exec"), names)
    except (Limit, Unsupported, Ended):
        raise
    except BaseException as error:
        if all(isinstance(statement, IMPORTS) for statement in group):
            raise Unsupported(f"the tests cannot be run: {describe(error)}") from None
        return describe(error)
    return None


def free_names(groups) -> set:
    """Names that the tests use and neither define nor have as builtins: those of the program."""
    nodes = [node for group in groups for statement in group for node in ast.walk(statement)]
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    own |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return {name for name in used - own if not hasattr(builtins, name) and not name.startswith("__")}


def modules_of(groups, names) -> dict:
    """Standard modules among the names that tests use without importing them: ``math`` in ``math.isclose(...)``.

    They are not the program's, which may have another ``math``. A name is a module's where the tests do nothing with it
    but read attributes that the module has; else it may be a function of the program, such as ``bisect``. Tests that
    ask nothing else of the program may ask for a ``math`` of its own.
    """
    read, found = only_read(groups), {}
    for name in sorted(names & read.keys() & COMPUTING):
        with contextlib.suppress(Exception):
            module = importlib.import_module(name)
            if all(hasattr(module, attribute) for attribute in read[name]):
                found[name] = module
    return found if names - found.keys() else {}


def only_read(groups) -> dict:
    """Names with which the tests do nothing but read attributes, and which: ``math`` with ``isclose``."""
    nodes = [node for group in groups for statement in group for node in ast.walk(statement)]
    read: dict = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            read.setdefault(node.value.id, []).append(node.attr)
    used = collections.Counter(node.id for node in nodes if isinstance(node, ast.Name))
    return {name: attributes for name, attributes in read.items() if used[name] == len(attributes)}


def names_of(head: str, groups, names) -> dict:
    """Helpers that the tests use and the task's own head defines, run here: a program may define them anew.

    Functions, constants and what is imported of modules that only compute. None where the head has classes: the
    program is given their objects, and gives them back, so that the tests need the program's own.
    """
    statements = helpers_of(head)
    defined, hidden = set(), set()
    for statement in statements:
        bound = bound_by(statement)
        defined |= bound
        if isinstance(statement, IMPORTS) and not modules_in(statement) <= COMPUTING:
            hidden |= bound
    classes = {statement.name for statement in statements if isinstance(statement, ast.ClassDef)}
    wanted = (names & defined) - hidden
    if not wanted or classes - only_read(groups).keys():
        return {}
    of_head: dict = {"__name__": "head", "__builtins__": builtins}
    for statement in statements:
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([statement], []), "<head>", "exec"), of_head)
    return {name: of_head[name] for name in wanted & of_head.keys()}


def helpers_of(head: str) -> list:
    """The statements of a head, without the last where the program goes on with it: an unfinished line or function."""
    for end in ("", "\n    pass", "\n        pass"):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            *before, last = ast.parse(head + end).body or [ast.Pass()]
            returns = isinstance(last, ast.FunctionDef) and isinstance(last.body[-1], ast.Return)
            whole = head.endswith("\n") and not end and (returns or not hasattr(last, "body"))
            return [*before, last] if whole else before
    return []


def bound_by(statement) -> set:
    """Names that a statement at the top of a file defines."""
    if isinstance(statement, IMPORTS):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    nodes = ast.walk(statement)
    return {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}


def modules_in(statement) -> set:
    if isinstance(statement, ast.ImportFrom):
        return {str(statement.module).partition(".")[0]}
    return {alias.name.partition(".")[0] for alias in statement.names}


_UNMETERED = (
    "eval exec compile getattr setattr delattr globals locals vars open breakpoint input memoryview type object super "
    "classmethod staticmethod property help exit quit"
)
UNMETERED = frozenset(_UNMETERED.split())


def meterable(code: str) -> bool:
    """Whether a program can only compute: it cannot reach what counts its instructions. Others are not metered."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.AsyncFunctionDef, ast.Await)):
            return False
        if isinstance(node, ast.Name) and (node.id in UNMETERED or node.id.startswith("__")):
            return False
        if isinstance(node, ast.Attribute) and (node.attr.startswith(("_", "f_", "gi_", "tb_", "cr_", "ag_"))):
            return False
    return True


def judge_pairs(code: str, programs: list, job: dict, verdict: dict) -> None:
    """Run the program once for each pair, and compare what it prints, white space at line ends left out."""
    verdict["tests"] = [False] * len(programs)
    for place, (program, (given, expected)) in enumerate(zip(programs, job["pairs"], strict=True)):
        try:
            send(program.commands, {"code": code, "stdin": given})
        except BrokenPipeError:
            continue
        printed = read_output(program, job["output_kb"] << 10)
        right = lines_of(printed.decode("utf-8", "replace")) == lines_of(expected)
        verdict["tests"][place] = right
        verdict["seconds"] += program.cpu_seconds()
        if not right and verdict["note"] is None:
            verdict["note"] = f"pair {place + 1}: it printed {printed[:80]!r}"


def keep_printed(code: str, program: JudgedProcess, job: dict, verdict: dict) -> None:
    """Run the program once; keep the beginning of what it prints, and the error that ended it."""
    with contextlib.suppress(BrokenPipeError):
        send(program.commands, {"code": code, "stdin": "", "tell": True})
    printed = bytearray()
    try:
        read_output(program, job["output_kb"] << 10, printed)
    finally:
        verdict["printed"] = printed.decode("utf-8", "replace")[: job["kept"]]
        verdict["seconds"] = program.cpu_seconds()
    verdict["ran"] = False
    with contextlib.suppress(Exception):
        error = receive(program.replies, MOST_REPLY)["error"]
        verdict["ran"] = error is None
        verdict["note"] = None if error is None else str(error)[: 2 * NOTE]


def read_output(program: JudgedProcess, most: int, read: bytearray | None = None) -> bytes:
    """All that it prints.

    Args:
        read: where it is put as it comes, so that it is there when a limit ends the reading.
    """
    read = bytearray() if read is None else read
    while part := os.read(program.output, 1 << 16):
        read += part
        if len(read) > most:
            raise Limit(f"output of more than {most >> 10} kB")
    return bytes(read)


def lines_of(text: str) -> list:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def note_endings(programs: list, cpu_seconds: int, verdict: dict, *, wait: float) -> None:
    """Which limit ended one of the processes."""
    limits: dict = {signal.SIGKILL: "CPU time", signal.SIGXCPU: "CPU time", signal.SIGXFSZ: "file size"}
    for program in programs:
        status, used = program.ending(wait)
        if used is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            early = number == signal.SIGKILL and used.ru_utime + used.ru_stime < cpu_seconds - 0.5
            verdict["killed"] = early  # whether by the machine, the machine has to show
            verdict["limit"] = f"signal {number}" if early else limits.get(number, f"signal {number}")
            return
