"""The code of docs/backends.md runs: a backend with an extension, and a client that uses it."""

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import nnhal
from nnhal.types import Operand, OperandType, OperationType
from tests.end_to_end.support.service_process import start_service, stop_service

GUIDE = Path(__file__).parents[3] / "docs" / "backends.md"

HEAD = """\
from collections.abc import Sequence
import numpy as np
from nnhal_backend.v1 import *

"""
ENTRY_POINTS = """
Npu.extensions = extensions
GetBackendId = lambda: "Npu"
GetVersion = lambda: API_VERSION
BackendFactory = Npu
"""


def snippet(first_line: str) -> str:
    """Return the block of code that begins with a line."""
    (found,) = re.findall(rf"^    {re.escape(first_line)}(?:\n    .*|\n(?=\n?    ))*", GUIDE.read_text(), re.MULTILINE)
    return textwrap.dedent(found) + "\n"


def test_backend_and_client_of_the_guide(tmp_path: Path) -> None:
    backend = [HEAD, snippet("class Npu(PerOperationBackend):"), snippet('NAME = "com.acme.npu"'), ENTRY_POINTS]
    (tmp_path / "Acme_Npu_backend.py").write_text("\n".join(backend))
    client = snippet("b = nnhal.ModelBuilder()").replace("device.prepare", "outputs = device.prepare")
    service = start_service(tmp_path, "--no-merge-partitions", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        with nnhal.connect(service.target) as device:
            names: dict[str, Any] = {"nnhal": nnhal, "Operand": Operand, "device": device}
            exec(client, names)
            (output,) = names["outputs"]
            assert (output.tobytes(), output.dtype) == (b"cba", np.dtype("V3"))
            b = nnhal.ModelBuilder()
            floats = Operand(OperandType.TENSOR_FLOAT32, (2,))
            b.output(b.add(OperationType.RELU, b.input(floats.type, (2,)), output=floats))
            prepared = device.prepare(b.build()).result()
            assert [operation.backend for operation in prepared.placement.operations] == ["Npu"]
            assert prepared.execute([np.array([-1, 2], np.float32)])[0].tolist() == [0, 2]
    finally:
        assert stop_service(service) == 0
