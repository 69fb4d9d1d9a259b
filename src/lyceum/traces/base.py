"""A trace: what the model should have said to a prompt, as fine-tuning takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
