"""A service where LiteRT cannot be imported: it starts with the other backends, and reports the reason."""

from pathlib import Path

import numpy as np

import nnhal
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import model_of, tensor
from tests.end_to_end.support.service_process import start_service, stop_service


def test_service_without_litert(tmp_path: Path) -> None:
    broken = tmp_path / "path" / "ai_edge_litert"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libLiteRt.so: cannot open shared object file')")
    service = start_service(tmp_path, PYTHONPATH=str(tmp_path / "path"))
    try:
        with nnhal.connect(service.target) as device:
            backends = {backend.id: backend for backend in device.backends()}
            assert backends["CpuRef"].state == nnhal.BackendState.READY
            assert backends["CpuAcc"].state == nnhal.BackendState.FAILED
            assert "ai-edge-litert: libLiteRt.so: cannot open" in backends["CpuAcc"].reason
            assert "CpuAcc" not in device.version
            floor = model_of(
                Op.FLOOR, [(tensor(T.TENSOR_FLOAT32, (1,)), 0)], [tensor(T.TENSOR_FLOAT32)], constants=False
            )
            with device.prepare(floor).result(60) as prepared:
                assert prepared.execute([np.array([1.5], np.float32)])[0].tolist() == [1]
    finally:
        stop_service(service)
    assert service.logged("backend CpuAcc (built in) cannot be used: backend CpuAcc needs the package ai-edge-litert")
