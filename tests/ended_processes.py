from pathlib import Path


def has_ended(pid: int) -> bool:
    """Whether there is no such process any more, or nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second, where it goes while its file is read
        return True
