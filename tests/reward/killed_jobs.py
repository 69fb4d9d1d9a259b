"""A job function whose process ends as if by somebody. It imports little: it is started again and again."""

import os
import signal
from pathlib import Path
from typing import Any


def doubles(dies_at_its_start: int, folder: str):
    """Doubles each job; one that is a signal's number and how often ends its process so often."""

    def die(number: int, times: int) -> None:
        place = Path(folder, "deaths")
        deaths = len(place.read_text()) if place.exists() else 0
        if deaths < times:
            place.write_text("." * (deaths + 1))
            os.kill(os.getpid(), number)

    def work(job: Any) -> Any:
        if isinstance(job, list):
            die(*job)
            return "done"
        return os.getpid() if job == "pid" else 2 * job

    die(signal.SIGKILL, dies_at_its_start)
    return work
