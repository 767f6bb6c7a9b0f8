"""`tools/build_kernels.py`: what is said when somebody interrupts it."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "build_kernels.py"


def test_ctrl_c_while_kernels_are_compiled_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    tool = runpy.run_path(str(TOOL))
    monkeypatch.setitem(tool["main"].__globals__, "what_is_missing", lambda: None)
    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        tool["main"]()
    assert ended.value.code == 130
    assert "make setup goes on" in capsys.readouterr().out
