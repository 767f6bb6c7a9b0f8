"""Makes the virtual environment from the lock file: `python3 tools/set_up.py .venv`.

Needs python3 and pip only, not ensurepip (Debian keeps that in python3-venv). Its syntax is that of
Python 3.6, to be able to tell somebody that theirs is too old.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
OLDEST_PIP = (22, 3)  # the first that installs into another environment
LOCK = Path("requirements.lock")


def main(folder: Path) -> None:
    """Make the environment in `folder`, or say in one sentence what is missing."""
    if sys.version_info < OLDEST:
        have = ".".join(str(part) for part in sys.version_info[:3])
        stop(
            f"OrbitMQ needs Python 3.11 or newer; this is Python {have} ({sys.executable}). With a"
            " newer one: make PYTHON=python3.12 run"
        )
    if (
        sys.prefix != sys.base_prefix
    ):  # an environment is active, and the one made here has no pip: the Python below it does it
        os.execv(sys._base_executable, [sys._base_executable, *sys.argv])  # type: ignore[attr-defined]
    check_pip()
    import venv

    python = folder / "bin" / "python"
    if not python.exists():
        venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    size = re.search(r"^# download: (.*)$", LOCK.read_text(), re.MULTILINE)
    assert size is not None, f"{LOCK} does not say its size: make lock"
    print(
        f"Setting up {folder}: {size.group(1)} to download, less what pip has cached.", flush=True
    )
    pip(python, "--require-hashes", "-r", str(LOCK))
    # The kernels are built by tools/build_kernels.py, which says what it does.
    os.environ["ORBITMQ_BUILD_KERNELS"] = "0"
    pip(python, "--no-build-isolation", "--no-deps", "-e", ".")


def check_pip() -> None:
    """Stop when there is no pip, or one that cannot install into another environment."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if asked.returncode != 0:
        stop(
            "pip is missing: install it (Debian: apt-get install python3-pip), then run this again."
        )
    version = tuple(int(part) for part in re.findall(r"\d+", asked.stdout.decode())[:2])
    if version < OLDEST_PIP:
        stop(
            f"pip {version[0]}.{version[1]} is too old, 22.3 or newer is needed: {sys.executable}"
            " -m pip install --upgrade pip"
        )


def pip(python: Path, *arguments: str) -> None:
    """Install into the environment of `python`."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    if subprocess.call(command) != 0:
        stop(
            "pip could not install the environment; its message stands above. Mend that, then run"
            " this again."
        )


def stop(sentence: str) -> None:
    """Say it, and end."""
    sys.exit(sentence)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except KeyboardInterrupt:
        stop("Interrupted; run it again to go on.")
