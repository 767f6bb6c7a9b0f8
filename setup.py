"""Compiles the kernels when Cython, a C compiler and Python's headers are there; otherwise they
stay interpreted.
"""

import importlib.util
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent


def kernel_names() -> tuple[str, ...]:
    spec = importlib.util.spec_from_file_location(
        "orbitmq_kernels", ROOT / "src" / "orbitmq" / "kernels.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.KERNELS


class OptionalKernels(build_ext):
    """A kernel that does not compile is left to the interpreter, and one line says so."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as problem:  # whatever the compiler says, the package works without it
            print(
                f"orbitmq: kernels stay interpreted, they could not be compiled: {problem}",
                file=sys.stderr,
            )


def extensions() -> list[Extension]:
    from Cython.Build import cythonize

    return cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.py"],
                extra_compile_args=["-O3", "-fno-semantic-interposition"],
            )
            for name in kernel_names()
        ],
        build_dir="build/cython",
        compiler_directives={"language_level": 3},
        include_path=["src"],
        nthreads=os.cpu_count() or 1,
    )


setup(
    ext_modules=extensions() if os.environ.get("ORBITMQ_BUILD_KERNELS", "1") != "0" else [],
    cmdclass={"build_ext": OptionalKernels},
)
