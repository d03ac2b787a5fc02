"""Programs that load the library: C programs, and Python programs, with threads, forks and unloading."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnhal_ndk.build import include_folder, native_folder
from tests.end_to_end.support.service_process import Service

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def environment(library_path: Path, ndk_service: Service) -> dict[str, str]:
    """Return the environment of programs that use the library."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library_path.parent), "NNHAL_TARGET": ndk_service.target}


def _compile(source: Path, folder: Path, library: Path, *flags: str) -> Path:
    program = folder / source.stem
    link = [f"-L{library.parent}", "-lneuralnetworks", "-ldl", "-lpthread"]
    command = ["cc", "-g", "-Wall", "-Werror", *flags, f"-I{include_folder()}", str(source), "-o", str(program), *link]
    subprocess.run(command, check=True)
    return program


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_self_test_passes(tmp_path: Path, library_path: Path, environment: dict[str, str]) -> None:
    program = _compile(native_folder() / "check.c", tmp_path, library_path)
    output = _run([str(program)], environment)
    assert output.splitlines()[-1] == "libneuralnetworks.so works"


def test_a_c_host_uses_threads_forks_and_unloads(
    tmp_path: Path, library_path: Path, environment: dict[str, str]
) -> None:
    program = _compile(Path(__file__).with_name("host.c"), tmp_path, library_path)
    output = _run([str(program)], environment)
    assert output.split() == ["loaded", "threads", "child", "forked", "reloaded", "done"]


PYTHON_HOST = """
import ctypes, gc, os, sys, threading
library = ctypes.CDLL("libneuralnetworks.so")
count = ctypes.c_uint32()
model = ctypes.c_void_p()
assert library.ANeuralNetworks_getDeviceCount(ctypes.byref(count)) == 0 and count.value == 2
assert library.ANeuralNetworksModel_create(ctypes.byref(model)) == 0
holding = ctypes.PyDLL("libneuralnetworks.so")  # its calls keep Python's lock
assert holding.ANeuralNetworksModel_finish(model) == 4
threads = [threading.Thread(target=library.ANeuralNetworksModel_finish, args=(model,)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
if (child := os.fork()) == 0:
    os._exit(library.ANeuralNetworksModel_finish(model))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
class Late:
    def __del__(self):  # after the library was told that the interpreter ends
        print(library.ANeuralNetworksModel_finish(model))
late = Late()
print("done")
"""


def test_a_python_host_shares_its_interpreter(environment: dict[str, str]) -> None:
    lines = _run([sys.executable, "-c", PYTHON_HOST], environment).split()
    assert lines == ["done", "14"]
