"""Mutated sub-models on a service of several clients: they may end engines, and no other client notices it."""

import threading

import numpy as np
import pytest

import nnhal
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.submodel.fuzzing import example
from tests.driver.backends.litert.support.regions import region
from tests.end_to_end.support.service_process import Service

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.slow
EXAMPLES = 150


def run(device: nnhal.Device, number: int) -> str:
    """Prepare and run a mutated region on zeros. Return how it ended."""
    try:
        with device.prepare(region(*example(number)), deadline=10.0).result(60) as prepared:
            values = [np.zeros([n or 1 for n in info.shape or ()], info.dtype) for info in prepared.inputs]
            prepared.execute(values, deadline=2.0)
    except nnhal.HalError as error:
        return "died" if "the process of the engine ended" in error.reason else "failed"
    return "ran"


def test_clients_do_not_notice_regions_of_others(service: Service) -> None:
    worker, done, results = service.pid, threading.Event(), []

    def work() -> None:
        b = nnhal.ModelBuilder()
        x = b.input(T.TENSOR_FLOAT32, (3,))
        b.output(b.add(Op.RELU, x, output=x.description))
        with nnhal.connect(service.target) as device, device.prepare(b.build()).result(60) as prepared:
            while not done.is_set():
                results.append(prepared.execute([[-1, 0, 5]])[0].tolist() == [0, 0, 5])

    victim = threading.Thread(target=work)
    victim.start()
    try:
        with nnhal.connect(service.target) as device:
            endings = [run(device, number) for number in range(EXAMPLES)]
    finally:
        done.set()
        victim.join(60)
    assert {"ran", "failed", "died"} == set(endings)
    assert results and all(results)
    assert service.pid == worker and not service.logged("worker-died")
