"""Child processes that restrict themselves, then attempt something."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ALLOWED = "allowed"
"""Outcome of an attempt without an error."""

_HEAD = """
import ctypes, errno, fcntl, json, os, signal, socket, subprocess, sys, tempfile, threading
from pathlib import Path
from nnhal_service import log
from nnhal_service.sandbox import landlock, restriction
from nnhal_service.sandbox.filter_program import Rule, assemble
from nnhal_service.sandbox.profile import SandboxProfile
from nnhal_service.sandbox.seccomp import load_program
from nnhal_service.sandbox.system_calls import process_control, system_call, this_machine

def write(path, mode="w"):
    with open(path, mode) as file:
        file.write("text")
def read(path):
    with open(path, "rb") as file:
        return file.read()
def python_folders():
    texts = {sys.prefix, sys.base_prefix, *sys.path}
    return tuple(Path(text) for text in texts if os.path.isabs(text))
SYSTEM = tuple(map(Path, ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc")))
log.configure("DEBUG")
"""
_TAIL = """
outcomes = {}
for name, code in ATTEMPTS.items():
    try:
        exec(code, globals())
        outcomes[name] = "allowed"
    except OSError as error:
        outcomes[name] = errno.errorcode.get(error.errno, str(error))
print(json.dumps(outcomes))
"""


def attempt(
    attempts: Mapping[str, str], profile: str, *, before: str = "", arguments: Mapping[str, object] | None = None
) -> tuple[dict[str, str], str]:
    """Return the outcomes of attempts in a restricted process, and its log.

    Args:
        attempts: statements, by name. An outcome is `ALLOWED`, or the name of an errno.
        profile: arguments of `SandboxProfile`.
        before: statements before the restriction.
        arguments: global variables of the statements; paths and numbers.
    """
    values = {name: str(value) if isinstance(value, Path) else value for name, value in (arguments or {}).items()}
    program = "\n".join(
        [
            _HEAD,
            *(f"{name} = {value!r}" for name, value in values.items()),
            before,
            f"missing = restriction.restrict(SandboxProfile(system=SYSTEM, readable=python_folders(), {profile}))",
            f"ATTEMPTS = {dict(attempts)!r}",
            _TAIL,
        ]
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # so that numpy starts no threads
    command = [sys.executable, "-P", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    outcomes: dict[str, str] = json.loads(result.stdout)
    return outcomes, result.stderr


def without_calls(*names: str) -> str:
    """Return statements after which these system calls fail as on a kernel that does not have them."""
    return (
        "process_control(38, 1)\n"
        f"load_program(assemble(this_machine(), [Rule(name, is_unknown=True) for name in {names!r}], 1, errno.ENOSYS))"
    )
