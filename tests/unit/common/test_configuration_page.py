"""docs/configuration.md matches the declared keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_keys_is_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "configuration_page.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr
