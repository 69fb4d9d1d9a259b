"""What a program may use, as a recipe says."""

from __future__ import annotations

from pydantic import Field

from lyceum.core.component import Settings


class ProgramLimits(Settings):
    """What a program may use."""

    seconds: float = Field(default=6.0, gt=0, le=3600)
    """Wall-clock time for all its tests together, in seconds."""
    cpu_seconds: int = Field(default=4, ge=1, le=3600)
    """CPU time of one of its processes, in seconds."""
    memory_mb: int = Field(default=512, ge=64, le=65536)
    """Address space of one of its processes, in MiB, Python itself included (about 30)."""
    files_mb: int = Field(default=8, ge=1, le=4096)
    """Size of all files in its folder, and of one file, in MiB."""
    output_kb: int = Field(default=256, ge=1, le=16384)
    """Size of what it prints for one test, in KiB."""
