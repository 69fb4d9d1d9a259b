"""Run as a program: runs a command until it ends, or standard input does, whose other end its starter holds: by then it
has ended, or was killed. Then all of the command's processes are ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

GRACE = 10.0
"""Seconds for the command to end by itself."""


def main() -> None:
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def ended() -> None:
        code = command.wait()
        end_all(signal.SIGKILL)
        os._exit(code if code >= 0 else 128 - code)

    def end_all(number: int) -> None:
        with suppress(OSError):  # none is left
            os.killpg(command.pid, number)

    threading.Thread(target=ended, daemon=True).start()
    while os.read(0, 1):
        pass
    end_all(signal.SIGTERM)
    time.sleep(GRACE)  # the thread exits before
    end_all(signal.SIGKILL)


if __name__ == "__main__":
    main()
