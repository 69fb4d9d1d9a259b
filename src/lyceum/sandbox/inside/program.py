"""A program's process: it runs the program and answers the judge. From its first line on it is not trusted."""

from __future__ import annotations

import builtins
import itertools
import json
import os
import sys

from .data import MOST_ITEMS, NOTE, decode, encode, receive, send


def program_process(commands: int, replies: int, output: int) -> None:
    """Runs the program and answers the judge's calls. Nothing that it says is believed, only compared."""
    command = receive(commands, 1 << 30)
    given = command["stdin"]
    if given is not None:
        handle = os.memfd_create("stdin") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDONLY)
        view = memoryview(given.encode("utf-8", "surrogatepass"))
        while view:
            view = view[os.write(handle, view) :]
        os.lseek(handle, 0, os.SEEK_SET)
        os.dup2(handle, 0)
        os.dup2(output, 1)
    os.close(output)
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.setrecursionlimit(5000)
    names: dict = {"__name__": "__main__", "__builtins__": builtins}
    error = None
    try:
        exec(compile(command["code"], "<program>", "exec"), names)
    except SystemExit:
        error = None if given is not None else "SystemExit"
    except BaseException as raised:
        error = place_of(raised) + describe(raised) if command.get("tell") else describe(raised)
    try:
        sys.stdout.flush()
    except BaseException:
        error = error or "its output could not be written"
    if command.get("tell"):
        send(replies, {"error": error})
    if given is not None:
        # What it printed has left; its own hooks at exit are not run.
        os._exit(0 if error is None else 1)
    send(replies, {"error": error})
    objects: list = []
    while True:
        send(replies, answer(receive(commands, 1 << 30), names, objects))


def answer(command, names, objects):
    def resolve(number):
        return objects[number]

    try:
        if command["op"] == "get":
            if command["name"] not in names:
                return {"missing": True}
            return {"value": encode(names[command["name"]], objects)}
        target = resolve(command["object"])
        if command["op"] == "attribute":
            return {"value": encode(getattr(target, command["name"]), objects)}
        arguments = decode(command["arguments"], resolve)
        keywords = decode(command["keywords"], resolve)
        counted = Meter() if command["metered"] else None
        before = json.dumps(encode(arguments, list(objects)))
        if counted:
            sys.settrace(counted)
        try:
            value = target(*arguments, **keywords)
            if counted and hasattr(value, "__next__"):
                value = iter(list(itertools.islice(value, MOST_ITEMS)))
        finally:
            if counted:
                sys.settrace(None)
        reply = {"value": encode(value, objects)}
        after = encode(arguments, list(objects))
        if json.dumps(after) != before:
            reply["arguments"] = after
        if counted:
            reply["operations"] = counted.operations
        return reply
    except BaseException as raised:
        return {"error": describe(raised), "type": type(raised).__name__}


class Meter:
    """Counts the Python instructions that are executed."""

    def __init__(self):
        self.operations = 0

    def __call__(self, frame, event, argument):
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.operations += 1
        return self


def place_of(error):
    """``line 3: ``, the line of the program in which it raised; empty where none is known."""
    line, trace = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<program>" else line
        trace = trace.tb_next
    return f"line {line}: " if isinstance(line, int) else ""


def describe(error):
    try:
        return f"{type(error).__name__}: {error}"[:NOTE]
    except BaseException:
        return "an error without a text"
