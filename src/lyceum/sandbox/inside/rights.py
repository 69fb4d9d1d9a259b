"""Giving up rights: capabilities, limits, files by Landlock, system calls by a filter. All of it is for good."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False  # as typing has it, which takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Sequence

LINUX = sys.platform.startswith("linux")
_libc = ctypes.CDLL(None, use_errno=True)

# Numbers of system calls on (x86_64, aarch64); the second has no old forms of some.
ALLOWED_CALLS = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "openat": (257, 56), "close": (3, 57),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "lseek": (8, 62),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233), "mincore": (27, 232), "membarrier": (324, 283), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "pipe": (22, None), "pipe2": (293, 59), "sched_yield": (24, 124), "dup": (32, 23),
    "dup2": (33, None), "dup3": (292, 24), "close_range": (436, 436), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "getitimer": (36, 102),
    "setitimer": (38, 103), "alarm": (37, None), "pause": (34, None), "getpid": (39, 172), "gettid": (186, 178),
    "getppid": (110, 173), "getpgrp": (111, None), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "uname": (63, 160),
    "sysinfo": (99, 179), "getrlimit": (97, None), "getrusage": (98, 165), "sched_getaffinity": (204, 123),
    "umask": (95, 166), "futex": (202, 98), "set_robust_list": (273, 99), "set_tid_address": (218, 96),
    "rseq": (334, 293), "arch_prctl": (158, None), "getrandom": (318, 278), "memfd_create": (319, 279),
    "eventfd2": (290, 19), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "wait4": (61, 260), "restart_syscall": (219, 128), "exit": (60, 93),
    "exit_group": (231, 94), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "getdents64": (217, 61),
    "statfs": (137, 43), "fstatfs": (138, 44), "readlink": (89, None), "readlinkat": (267, 78),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "flock": (73, 32),
    "fsync": (74, 82), "fdatasync": (75, 83), "truncate": (76, 45), "ftruncate": (77, 46), "fadvise64": (221, 223),
    "sendfile": (40, 71), "copy_file_range": (326, 285),
}  # fmt: skip
CLONE, CLONE3, FCNTL, IOCTL = (56, 220), (435, 435), (72, 25), (16, 29)
PRLIMIT, TGKILL, KILL = (302, 261), (234, 131), (62, 129)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_LOAD, _EQUAL, _SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in what a filter sees: the call's number, the architecture, six arguments of 8 bytes (low word first)."""


def seccomp_filter(machine: str, pid: int, ends: Sequence[int] = ()) -> bytes:
    """The filter of system calls: what computes, reads and writes is allowed, all else is refused.

    Processes, sockets, signals to others, rights, limits and owners of files are all else; threads are allowed.

    Args:
        pid: of this process, which may signal itself.
        ends: processes that it may signal.
    """
    column, architecture = ARCHITECTURES[machine]
    program: list[tuple[int, int, int, int]] = []

    def rule(number: int, *inner: tuple[int, int, int, int]) -> None:
        program.append((_EQUAL, 0, len(inner), number))
        program.extend(inner)

    def give(action: int) -> tuple[int, int, int, int]:
        return (_RETURN, 0, 0, action)

    def argument(which: int) -> tuple[int, int, int, int]:
        return (_LOAD, 0, 0, _ARGUMENTS + 8 * which)

    def one_of(which: int, values: Sequence[int], then: int, otherwise: int) -> list[tuple[int, int, int, int]]:
        tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
        return [argument(which), *tests, give(otherwise), give(then)]

    program += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), give(_KILL), (_LOAD, 0, 0, _NUMBER)]
    for numbers in ALLOWED_CALLS.values():
        number = numbers[column]
        if number is not None:
            rule(number, give(_ALLOW))
    rule(CLONE[column], argument(0), (_SET, 1, 0, 0x10000), give(_EPERM), give(_ALLOW))  # threads alone
    rule(CLONE3[column], give(_ENOSYS))  # its flags cannot be read here; the C library then takes clone
    # Of its own limits it may only set the stack's: with one of 0 seconds of CPU time the kernel ends it by SIGKILL,
    # as it does where the machine has no memory left. The pointer to the new limit has two words.
    new_limit = [argument(2), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _ARGUMENTS + 8 * 2 + 4), (_EQUAL, 0, 1, 0)]
    of_itself = [argument(0), (_EQUAL, 0, 7, 0), argument(1), (_EQUAL, 4, 0, resource.RLIMIT_STACK)]
    rule(PRLIMIT[column], *of_itself, *new_limit, give(_ALLOW), give(_EPERM))
    # abort, and no other signal: not SIGKILL either, for the same reason.
    own = [argument(0), (_EQUAL, 0, 3, pid), argument(2), (_EQUAL, 0, 1, signal.SIGABRT)]
    rule(TGKILL[column], *own, give(_ALLOW), give(_EPERM))
    if ends:
        rule(KILL[column], *one_of(0, ends, _ALLOW, _EPERM))
    # Not those that send signals to another process, or wait for one: owner, signal, lease, notification.
    rule(FCNTL[column], *one_of(1, [8, 10, 15, 1024, 1026], _EPERM, _ALLOW))
    rule(IOCTL[column], *one_of(1, [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451], _ALLOW, _EPERM))
    program.append(give(_EPERM))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _must(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, argument: int = 0) -> int:
    return _libc.prctl(option, ctypes.c_ulong(argument), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def install_seccomp(ends: Sequence[int]) -> None:
    text = seccomp_filter(os.uname().machine, os.getpid(), ends)

    class FilterProgram(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    program = FilterProgram(len(text) // 8, text)
    _must(_libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), ctypes.c_ulong(0), ctypes.c_ulong(0)), "seccomp")


def landlock_version() -> int:
    """Version of Landlock that the kernel has; 0 for none."""
    return max(_libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1)), 0)


def install_landlock(version: int, readable: list[str], writable: list[str], scopes: int) -> None:
    """No file but these, no TCP, and from version 6 no abstract sockets (scope 1) and no signals (2) of others."""
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    attributes = struct.pack("QQQ", files, 3, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _must(_libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)), "Landlock")
    for path in [*readable, *writable]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        folder = os.path.isdir(path)
        # Read files and folders; or all but to execute, and to make sockets, pipes and devices.
        rights = files & (~0xE41 if path in writable else 0xC)
        rule = struct.pack("=Qi", rights if folder else rights & 0x4006, handle)
        _must(_libc.syscall(445, ruleset, 1, rule, ctypes.c_uint(0)), f"Landlock for {path}")
        os.close(handle)
    _must(_libc.syscall(446, ruleset, ctypes.c_uint(0)), "Landlock")
    os.close(ruleset)


def drop_capabilities() -> None:
    for capability in range(64):
        prctl(24, capability)  # fails above the last, and where there is none to drop
    header = struct.pack("Ii", 0x20080522, 0)
    _must(_libc.capset(header, bytes(24)), "capabilities")


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    if LINUX:
        prctl(1, signal.SIGKILL)


def hide_memory() -> None:
    """Let no other process of this user read this one's memory or descriptors."""
    if LINUX:
        prctl(4, 0)


def limit(which: int, value: int) -> None:
    # Some systems have no such limit, or refuse it (macOS: memory); the wall-clock limit stays.
    try:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    except (OSError, ValueError):
        pass


def limit_resources(settings: dict) -> None:
    limit(resource.RLIMIT_AS, settings["memory_mb"] << 20)
    limit(resource.RLIMIT_CPU, settings["cpu_seconds"])
    limit(resource.RLIMIT_FSIZE, settings["files_mb"] << 20)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, settings["open_files"])


def give_up_rights(settings: dict, *, scopes: int, ends: Sequence[int] = ()) -> None:
    """All rights that are not needed to compute, for good; what a backend needs and the kernel lacks is an error."""
    limit_resources(settings)
    if not LINUX or not settings["confine"]:
        return
    _must(prctl(38, 1), "no new privileges")
    version = landlock_version()
    if version:
        install_landlock(version, settings["readable"], settings["writable"], scopes)
    elif settings["needs_landlock"]:
        raise OSError("this kernel has no Landlock")
    install_seccomp(ends)
