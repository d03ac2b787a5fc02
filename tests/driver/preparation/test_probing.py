"""Probes wait for other probes only: models that are known do not wait for them, nor do other owners."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from nnhal.errors import general_failure
from nnhal.types import ErrorStatus, Model
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.preparation.launch import DeviceCall, GivenModel, PreparationLaunch
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.quarantine import Probe
from nnhal_driver.scheduling.cancellation import Cancellation
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE

UNKNOWN, KNOWN, FAILING = b"unknown", b"known", b"failing"


class BlockingProber:
    """Prober whose probes of unknown models last until `go`.

    Attributes:
        running: number of probes that run.
    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = 0

    def begin(self, device: str, model: Model, digest: bytes) -> Probe | None:
        return {UNKNOWN: self._wait, KNOWN: None, FAILING: self._fail}[digest]

    def _wait(self, check: Callable[[], None]) -> None:
        self.running += 1
        while not self.go.wait(0.01):
            check()

    def _fail(self, check: Callable[[], None]) -> None:
        raise general_failure("the probe failed")


@pytest.fixture
def prober() -> BlockingProber:
    return BlockingProber()


@pytest.fixture
def device(prober: BlockingProber) -> Iterator[Device]:
    running = Device("probing", [CpuRef()], host=DeviceHost(prober=prober))
    yield running
    prober.go.set()
    running.close()


def launch(device: Device, digest: bytes, owner: str) -> tuple["SimpleQueue[Outcome]", Cancellation]:
    """Launch a preparation, and return the queue of its outcome."""
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    call = DeviceCall(owner=owner)
    device.prepare_model(PreparationLaunch(GivenModel(TWICE, digest), outcomes.put, call))
    return outcomes, call.cancellation


def test_probes_hold_up_neither_known_models_nor_other_owners(device: Device, prober: BlockingProber) -> None:
    greedy = [launch(device, UNKNOWN, "greedy")[0] for _ in range(5)]
    assert wait_until(lambda: prober.running == 1, 60)
    modest, _ = launch(device, UNKNOWN, "modest")
    assert wait_until(lambda: prober.running == 2, 60)
    for owner in ("greedy", "modest", "other"):
        known, _ = launch(device, KNOWN, owner)
        assert known.get(timeout=60).status == ErrorStatus.NONE
    assert (prober.running, device.queued_preparations) == (2, 4)
    prober.go.set()
    for outcomes in (*greedy, modest):
        assert outcomes.get(timeout=60).prepared_model is not None


def test_preparation_ends_with_its_probe(device: Device, prober: BlockingProber) -> None:
    failed, _ = launch(device, FAILING, "first")
    assert failed.get(timeout=60).reason == "the probe failed"
    cancelled, cancellation = launch(device, UNKNOWN, "first")
    assert wait_until(lambda: prober.running == 1, 60)
    cancellation.cancel()
    assert cancelled.get(timeout=60).status == ErrorStatus.GENERAL_FAILURE
    assert cancelled.empty()


def test_closed_device_finishes_its_probes(prober: BlockingProber) -> None:
    device = Device("closing", [CpuRef()], host=DeviceHost(prober=prober))
    outcomes, _ = launch(device, UNKNOWN, "first")
    closing = threading.Thread(target=device.close)
    closing.start()
    prober.go.set()
    closing.join(60)
    assert outcomes.get(timeout=60).status == ErrorStatus.NONE
