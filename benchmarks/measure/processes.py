"""New processes, for measurements that begin with the process."""

from __future__ import annotations

import os
import subprocess
import sys

# jax's cache on disk is off unless the first names a folder. Packages that pip installs have their bytecode; the second
# would keep a checkout from having its own, and have it compiled by each process.
LEFT_OUT = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")


def output_of(code: str, **variables: str) -> str:
    """The output of Python code in a new process. variables: its environment. Raises RuntimeError where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT} | variables
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a timed process failed:\n{done.stderr}")
    return done.stdout
