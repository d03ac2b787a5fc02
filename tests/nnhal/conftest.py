"""Tests of the client on other systems than Linux: all of them, except those that use a driver or Linux itself."""

import sys
from pathlib import Path

_NEED_LINUX = (
    "builder/test_arguments.py",
    "builder/test_control_flow.py",
    "builder/test_model.py",
    "builder/test_operand_rules.py",
    "client/core/test_memory.py",
    "client/fallback/test_division.py",
    "client/fallback/test_execution.py",
    "client/fallback/test_placement.py",
    "client/test_redirects.py",
    "grpc_internals/test_server_calls.py",
    "litert/",
    "shm/test_spin_wait.py",
    "test_cpu.py",
    "test_embedded.py",
    "test_local_users.py",
    "tflite/test_compositions.py",
    "tflite/test_corpus.py",
    "tflite/test_differences.py",
    "tflite/test_models.py",
    "tflite/comparisons/",
    "tflite/test_shapes.py",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore what needs Linux. The system is read here, because the tests also run on imitated systems."""
    if sys.platform == "linux":
        return None
    return collection_path in {Path(__file__).parent / name for name in _NEED_LINUX} or None
