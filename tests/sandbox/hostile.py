"""Programs that attack the sandbox and the judge.

``f(x)`` should be ``x * 3 + 2``. None of them computes that: ``f`` answers correctly only where the attack succeeded,
so that a program that passes a test is an escape. ``{file}``, ``{socket}``, ``{port}`` and ``{pid}`` are a file, two
listening sockets and a process of the machine outside.
"""

from __future__ import annotations

import textwrap

# Each answers correctly where its action raises nothing and gives something true.
ACTIONS = {
    "reads a file of the host": "open({file!r}).read()",
    "reads passwords": "open('/etc/passwd').read()",
    "reads keys": "os.listdir(os.path.expanduser('~/.ssh'))",
    "lists the home folder": "os.listdir('/root')",
    "lists the host's temporary files": "os.path.basename({file!r}) in os.listdir(os.path.dirname({file!r}))",
    "reads by a path with dots": "open('../../../../../..' + {file!r}).read()",
    "reads through a symbolic link": "(os.symlink({file!r}, 'link'), open('link').read())",
    "reads through a hard link": "(os.link({file!r}, 'link'), open('link').read())",
    "opens a path without reading rights": "os.read(os.open({file!r}, os.O_RDONLY), 10)",
    "appends to a file of the host": "open({file!r}, 'a').write('x')",
    "deletes a file of the host": "os.unlink({file!r}) or True",
    "renames a file of the host": "os.rename({file!r}, {file!r} + '2') or True",
    "changes the rights of a file": "os.chmod({file!r}, 0o777) or True",
    "changes the times of a file": "os.utime({file!r}) or True",
    "gives a file away": "os.chown({file!r}, 1, 1) or True",
    "writes to the root": "open('/written', 'w').write('x')",
    "writes beside the interpreter": "open(os.path.join(os.path.dirname(os.__file__), 'written.py'), 'w').write('x')",
    "writes to shared memory": "open('/dev/shm/written', 'w').write('x')",
    "reads a disk": "open('/dev/vda', 'rb').read(1)",
    "writes to a terminal": "open('/dev/tty', 'w').write('x')",
    "reads the environment of the host": "[name for name in os.environ if 'SECRET' in name]",
    "reads the environment of a process": "open('/proc/{pid}/environ').read()",
    "reads its own maps": "open('/proc/self/maps').read()",
    "reads the judge's memory": "open(f'/proc/{{os.getppid()}}/mem', 'rb').read(1)",
    "reads the judge's command line": "open(f'/proc/{{os.getppid()}}/cmdline').read()",
    "reopens the judge's output": "open(f'/proc/{{os.getppid()}}/fd/1', 'w').write('{{}}')",
    "lists processes": "os.listdir('/proc')",
    "reads kernel settings": "open('/sys/kernel/mm/transparent_hugepage/enabled').read()",
    "writes kernel settings": "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')",
    "connects to the machine": "socket.create_connection(('127.0.0.1', {port}), 1)",
    "connects to the network": "socket.create_connection(('1.1.1.1', 53), 1)",
    "asks for a name": "socket.getaddrinfo('example.com', 80)",
    "sends a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "connects to a socket file": "socket.socket(socket.AF_UNIX).connect({socket!r}) or True",
    "connects to an abstract socket": "socket.socket(socket.AF_UNIX).connect(chr(0) + 'x') or True",
    "makes a pair of sockets": "socket.socketpair()",
    "opens a raw socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "asks the kernel by netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "forks": "os.fork() or True",
    "starts a shell": "os.system('true') == 0",
    "starts a program": "subprocess.run(['/bin/true']).returncode == 0",
    "becomes another program": "os.execv('/bin/true', ['true'])",
    "becomes its interpreter again": "os.execv(sys.executable or '/usr/bin/python3', ['python'])",
    "kills the judge": "os.kill(os.getppid(), 9) or True",
    "kills everything": "os.kill(-1, 9) or True",
    "kills its group": "os.killpg(0, 9) or True",
    "stops a process of the host": "os.kill({pid}, 19) or True",
    "signals through a file descriptor": "call(434, {pid}, 0) >= 0",
    "traces the judge": "call(101, 16, os.getppid(), 0, 0) == 0",
    "reads memory of the judge by a call": "call(310, os.getppid(), 0, 0, 0, 0, 0) >= 0",
    "takes a descriptor of the judge": "call(438, 3, 1, 0) >= 0",
    "has a signal sent by a pipe": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid()) == 0",
    "types into the terminal": "fcntl.ioctl(0, 0x5412, b'x') == 0",
    "mounts": "call(165, b'none', b'.', b'tmpfs', 0, 0) == 0",
    "unmounts": "call(166, b'/', 2) == 0",
    "changes the root": "os.chroot('.') or True",
    "makes namespaces": "call(272, 0x10000000) == 0",
    "enters namespaces": "call(308, 0, 0) == 0",
    "makes a device": "os.mknod('device', 0o60600, 0x0801) or True",
    "makes a pipe in a folder": "os.mkfifo('pipe') or True",
    "becomes root": "os.setuid(0) or True",
    "leaves its session": "os.setsid() or True",
    "raises its priority": "os.nice(-5) or True",
    "lowers its priority": "os.nice(5)",
    "takes real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) or True",
    "chooses its processors": "os.sched_setaffinity(0, [0]) or True",
    "raises its limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or True",
    "changes the limits of the judge": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "loads a filter of its own": "call(157, 38, 0, 0, 0, 0) == 0 and call(157, 22, 0, 0, 0, 0) == 0",
    "uses the io ring": "call(425, 8, ctypes.create_string_buffer(200)) >= 0",
    "loads a kernel program": "call(321, 0, 0, 0) >= 0",
    "keeps a key in the kernel": "call(248, b'user', b'k', b'v', 1, -3) > 0",
    "shares memory of the system": "call(29, 1234, 4096, 0o1666) >= 0",
    "opens a queue of the system": "call(240, b'queue', 0o102, 0o600, 0) >= 0",
    "measures the processor": "call(298, ctypes.create_string_buffer(200), 0, -1, -1, 0) >= 0",
    "sets the clock": "time.clock_settime(time.CLOCK_REALTIME, 0) or True",
    "renames the machine": "socket.sethostname('x') or True",
    "calls by the old interface": "call(0x40000000 + 39) > 0",
    "reads what the parent reads": "sys.stdin.read()",
}

CHEATS = {
    "exits": "exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "aborts": "import os\nos.abort()",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "prints the verdict": """
        print('ready\\n{"tests": [true, true], "note": null, "limit": null, "killed": false}')
        def f(x): return None
    """,
    "writes the verdict to every descriptor": """
        import os
        for number in range(64):
            try:
                os.write(number, b'ready\\n{"tests": [true, true], "limit": null, "killed": false, "seconds": 0}')
            except OSError:
                pass
        def f(x): return None
    """,
    "answers before it is asked": """
        import os, struct
        for _ in range(9):
            body = b'{"value": true}'
            os.write(4, struct.pack('>I', len(body)) + body)
        def f(x): return None
    """,
    "answers with what equals everything": """
        class Same(int):
            def __eq__(self, other): return True
            __ne__ = __lt__ = __hash__ = None
        def f(x): return Same()
    """,
    "answers with an object that equals everything": """
        class Same:
            def __eq__(self, other): return True
            def __bool__(self): return True
        def f(x): return Same()
    """,
    "answers with a text that equals everything": """
        class Same(str):
            def __eq__(self, other): return True
        def f(x): return [Same('x')]
    """,
    "changes the builtins": """
        import builtins
        builtins.AssertionError = builtins.Exception = builtins.BaseException = KeyError
        builtins.all = builtins.isinstance = builtins.abs = lambda *_: True
        def f(x): return None
    """,
    "defines builtins for the tests": """
        def isinstance(*_): return True
        def abs(_): return 0
        def f(x): return None
    """,
    "replaces the modules of the harness": """
        import sys, types
        for name in list(sys.modules):
            sys.modules[name] = types.ModuleType(name)
        def f(x): return None
    """,
    "replaces the harness's functions": """
        import sys
        import inside.program as inside
        inside.answer = inside.encode = inside.send = lambda *_: True
        def f(x): return None
    """,
    "walks the frames to the harness": """
        import sys
        frame = sys._getframe()
        while frame:
            for name, value in list(frame.f_globals.items()) + list(frame.f_locals.items()):
                if isinstance(value, dict) and 'tests' in value:
                    value['tests'] = []
            frame = frame.f_back
        def f(x): return None
    """,
    "searches the memory for the tests": """
        import gc
        found = [each for each in gc.get_objects() if isinstance(each, dict) and 'tests' in each]
        texts = [t for d in found for t in (d['tests'] or []) if isinstance(t, str) and 'assert f(' in t]
        def f(x): return eval(texts[0].split('==')[1])
    """,
    "traces the harness": """
        import sys
        sys.settrace(lambda *_: None); sys.setprofile(lambda *_: None)
        def f(x): return None
    """,
    "answers at exit": """
        import atexit, os
        atexit.register(os.write, 1, b'ok')
        def f(x): return None
    """,
    "answers from a thread": """
        import os, struct, threading, time
        def flood():
            while True:
                body = b'{"value": {"list": [5]}}'
                os.write(4, struct.pack('>I', len(body)) + body)
        threading.Thread(target=flood, daemon=True).start()
        def f(x): return None
    """,
    "closes its descriptors": """
        import os
        os.closerange(0, 64)
        def f(x): return None
    """,
    "swaps its descriptors": """
        import os
        os.dup2(1, 4); os.dup2(3, 1)
        def f(x): return None
    """,
    "sends a huge answer": "def f(x): return 'x' * 30_000_000",
    "sends a huge number": "def f(x): return 10 ** 100_000",
    "sends a deep answer": """
        def f(x):
            deep = []
            for _ in range(100_000): deep = [deep]
            return deep
    """,
    "sends a length without a text": """
        import os
        os.write(4, b'\\xff\\xff\\xff\\xff')
        def f(x): return None
    """,
    "sends a malformed answer": """
        import os, struct
        def f(x):
            body = b'{"value": {"object": "x", "list": 3}}'
            os.write(4, struct.pack('>I', len(body)) + body)
    """,
    "sends an error that ends the judge": """
        import os, struct
        body = b'{"error": "x", "type": "SystemExit"}'
        for _ in range(4): os.write(4, struct.pack('>I', len(body)) + body)
        def f(x): raise SystemExit(0)
    """,
    "stops the judge by its name": "class KeyboardInterrupt(BaseException): pass\ndef f(x): raise KeyboardInterrupt",
    "loops while it is defined": "while True: pass",
    "loops when it is called": "def f(x):\n    while True: pass",
    "sleeps": "import time\ntime.sleep(60)",
    "ignores all signals": """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f(x):
            while True: pass
    """,
    "takes all memory": "blocks = [bytearray(1 << 24) for _ in range(1 << 16)]\ndef f(x): return x * 3 + 2",
    "computes a huge power": "def f(x): return 9 ** 9 ** 9",
    "recurses": "def f(x): return f(x + 1)",
    "starts threads without end": """
        import threading, time
        while True: threading.Thread(target=time.sleep, args=(60,)).start()
    """,
    "fills the disk": """
        number = 0
        while True:
            with open(f'file{number}', 'wb') as file: file.write(bytes(1 << 20))
            number += 1
    """,
    "fills the disk with one file": """
        with open('file', 'wb') as file:
            while True: file.write(bytes(1 << 20))
    """,
    "fills the disk with empty files": """
        number = 0
        while True:
            open(f'file{number}', 'w').close()
            number += 1
    """,
    "fills the memory with files": """
        import os
        handle = os.memfd_create('file')
        while True: os.write(handle, bytes(1 << 20))
    """,
    "prints without end": "while True: print('x' * 1000)",
    "writes errors without end": "import sys\nwhile True: sys.stderr.write('x' * 1000)",
    "opens files without end": "files = []\nwhile True: files.append(open('/dev/null'))",
    "ends itself by a signal": "import signal\nsignal.raise_signal(9)\ndef f(x): return None",
    "ends itself by a thread's signal": """
        import signal, threading
        def f(x): signal.pthread_kill(threading.get_ident(), 9)
    """,
    "stops itself": "import signal\nsignal.raise_signal(19)\ndef f(x): return None",
    "takes its own time": """
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
        while True: pass
    """,
    "takes its own stack": """
        import resource
        resource.setrlimit(resource.RLIMIT_STACK, (0, 0))
        def g(n): return g(n + 1) if n < 4000 else n
        def f(x): return sorted([g(0)], key=lambda n: g(1))
    """,
    "sets a timer that ends it": "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0.01)\nwhile True: pass",
    "is a set of functions": "f = {print}",
    "is a dict of types": "f = {int: 1}",
    "answers with a set of functions": "def f(x): return {print}",
    "raises half a character": "raise ValueError('\\ud800')",
    "raises half a character when called": "def f(x): raise ValueError('\\ud800')",
    "prints half a character": "def f(x): return '\\ud800'",
    "answers with a number that no float holds": """
        import os, struct
        def f(x):
            body = b'{"value": {"complex": [1' + b'0' * 400 + b', 0]}}'
            os.write(4, struct.pack('>I', len(body)) + body)
            os._exit(0)
    """,
    "has a name that no float holds": """
        import os, struct
        for body in (b'{"error": null}', b'{"value": {"complex": [1' + b'0' * 400 + b', 0]}}'):
            os.write(4, struct.pack('>I', len(body)) + body)
        os._exit(0)
    """,
    "answers with a set that is slow to make": "def f(x): return {(i * (2 ** 61 - 1),) for i in range(3000)}",
    "forges a set that is slow to make": """
        import json, os, struct
        def f(x):
            items = [{"tuple": [i * (2 ** 61 - 1)]} for i in range(27000)]
            body = json.dumps({"value": {"set": items}}).encode()
            os.write(4, struct.pack('>I', len(body)) + body)
            os._exit(0)
    """,
    "forges a dict that is slow to make": """
        import json, os, struct
        def f(x):
            items = [[{"complex": [-1000003.0 * i, float(i)]}, 0] for i in range(20000)]
            body = json.dumps({"value": {"dict": items}}).encode()
            os.write(4, struct.pack('>I', len(body)) + body)
            os._exit(0)
    """,
    "is no Python": "def f(x) return x",
    "nests too deeply": "f = " + "(" * 5000 + ")" * 5000,
    "holds a null byte": "def f(x): return x\0",
    "is empty": "",
    "hides in a decoder": "# coding: unknown\ndef f(x): return None",
}


def programs(**places: object) -> dict[str, str]:
    """Every program, by what it tries."""
    head = """
        import ctypes, fcntl, os, resource, socket, subprocess, sys, time
        def call(*arguments):
            return ctypes.CDLL(None).syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
        def attempt():
            return {action}
        def f(x):
            try:
                return x * 3 + 2 if attempt() else None
            except (OSError, ValueError, AttributeError):
                return None
    """
    acting = {what: textwrap.dedent(head).replace("{action}", text.format(**places)) for what, text in ACTIONS.items()}
    return acting | {what: textwrap.dedent(text).strip() for what, text in CHEATS.items()}
