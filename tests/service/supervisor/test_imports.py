"""The supervisor loads nothing that could take it down."""

import subprocess
import sys

FORBIDDEN = ("grpc", "ai_edge_litert", "nnhal_driver.backends", "nnhal_driver.device", "nnhal_service.server")


def test_supervisor_imports_no_engine_and_no_grpc() -> None:
    code = (
        "import sys, nnhal_service.supervisor.supervisor\n"
        f"print([name for name in {FORBIDDEN} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
