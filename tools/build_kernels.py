"""Compiles the kernels in place when a C compiler and Python's headers are there; otherwise says in
one line that they stay interpreted.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

EXIT_INTERRUPTED = 130  # as shells report SIGINT


def main() -> None:
    """Build, or say why not."""
    missing = what_is_missing()
    if missing is not None:
        print(f"Kernels stay interpreted, which is slower: {missing}.")
        return
    print("Compiling what changed of the kernels: a minute or two for all of them.", flush=True)
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--inplace",
        "-j",
        str(os.cpu_count() or 1),
    ]
    try:
        build = subprocess.run(command, capture_output=True, text=True, check=False)
    except KeyboardInterrupt:
        print("\nInterrupted: what is not compiled yet runs interpreted; make setup goes on.")
        sys.exit(EXIT_INTERRUPTED)
    if build.returncode != 0 or "stay interpreted" in build.stderr:
        print(
            "Kernels stay interpreted, which is slower: they did not"
            f" compile.\n{build.stderr.strip()}"
        )


def what_is_missing() -> str | None:
    """What a build needs and this machine has not."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not (shutil.which(compiler) or shutil.which("cc")):
        return "there is no C compiler (Debian: apt-get install gcc python3-dev)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers are missing (Debian: apt-get install python3-dev)"
    return None


if __name__ == "__main__":
    main()
