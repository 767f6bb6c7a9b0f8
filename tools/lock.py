"""Pins what pyproject.toml asks for, with hashes, to requirements.lock, and writes the size of the
download on top.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path("requirements.lock")


def main() -> None:
    """Resolve with uv, then weigh what this platform would download."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{folder}/uv", "uv"],
            check=True,
        )
        options = "pyproject.toml --extra dev --extra spark"
        options += (
            " --universal --python-version 3.11 --generate-hashes --no-header --no-annotate"
            " --upgrade"
        )
        subprocess.run(
            [
                f"{folder}/uv/bin/uv",
                "pip",
                "compile",
                "--quiet",
                *options.split(),
                "-o",
                f"{folder}/lock",
            ],
            check=True,
        )
        pins = Path(folder, "lock").read_text()
        wheels = Path(folder, "wheels")
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "-r",
                f"{folder}/lock",
                "-d",
                str(wheels),
            ],
            check=True,
        )
        megabytes = round(sum(wheel.stat().st_size for wheel in wheels.iterdir()) / 1e6)
    LOCK.write_text(
        "# Made by `make lock`. Every package that runs, tests or builds OrbitMQ.\n# download:"
        f" about {megabytes} MB\n{pins}"
    )


if __name__ == "__main__":
    main()
