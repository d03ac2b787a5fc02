"""Report on a service: what its agent makes of the totals."""

from nnhal.admin.v1 import admin_pb2
from nnhal_service.peers.fleet.member import Member
from nnhal_service.peers.fleet.member_report import WaitMeter, member_of


def test_the_wait_is_that_of_the_executions_since_the_last_report() -> None:
    now = 0.0
    meter = WaitMeter(lambda: now)
    assert meter.update(0, 0.0, 0) == 0.0
    assert meter.update(10, 5.0, 3) == 0.5
    assert meter.update(12, 5.5, 3) == 0.25
    now = 2.0
    assert meter.update(12, 5.5, 3) == 2.25, "those that wait have done so since"
    now = 3.0
    assert meter.update(12, 5.5, 0) == 0.0, "nothing waits"
    assert meter.update(2, 1.0, 3) == 0.0, "the service has been started again"
    assert meter.update(4, 2.0, 0) == 0.5


def test_adapters_are_accelerators_of_the_member() -> None:
    gpu = admin_pb2.BackendSnapshot(id="GpuAcc", state="ready", hardware={"adapter": "NVIDIA H200", "driver": "580"})
    lost = admin_pb2.BackendSnapshot(id="Npu", state="failed", hardware={"adapter": "Lost"})
    cpu = admin_pb2.BackendSnapshot(id="CpuAcc", state="ready", version="1")
    devices = [admin_pb2.DeviceSnapshot(name="first", backends=[gpu, cpu]), admin_pb2.DeviceSnapshot(backends=[gpu])]
    known = Member("a", "host", "host:1", accelerators=("Npu",))
    member = member_of(
        admin_pb2.ServiceSnapshot(devices=[*devices, admin_pb2.DeviceSnapshot(backends=[lost])]), known, WaitMeter()
    )
    assert member.accelerators == ("Npu", "NVIDIA H200")
    assert member.has("NVIDIA H200") and member.has("CpuAcc") and not member.has("Lost")
