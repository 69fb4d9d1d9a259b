"""Ctrl-C and imports."""

from __future__ import annotations

import importlib
import signal
import sys
import time
from pathlib import Path

import pytest

from lyceum.utils.interrupts import imports_whole


def test_ctrl_c_during_an_import_takes_effect_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Half of torch in a notebook, and every later cell fails: "Could not import module 'AutoConfig'".
    (tmp_path / "slow_to_import.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nfor _ in range(1000):\n    whole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    def cell() -> None:
        with imports_whole():
            importlib.import_module("slow_to_import")
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        cell()
    assert sys.modules["slow_to_import"].whole
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_anywhere_else_is_at_once():
    went_on = False

    def cell() -> None:
        nonlocal went_on
        with imports_whole():
            signal.raise_signal(signal.SIGINT)
            went_on = True

    with pytest.raises(KeyboardInterrupt):
        cell()
    assert not went_on
