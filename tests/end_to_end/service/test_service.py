"""The service as its clients and operators see it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import nnhal
from nnhal.types import DataLocation, ErrorKind, ErrorStatus, Memory, OperandLifeTime, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import memory_pb2, session_pb2, types_pb2
from tests.concurrency import run_concurrently, wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import (
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service, start_service, stop_service

X = tensor(T.TENSOR_FLOAT32, (0, 3))
ADD = model_of(Op.ADD, [(X, np.zeros((1, 3))), (X, np.zeros((1, 3))), int32(0)], [X], constants=False)


def test_description_of_the_device(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert (device.type.name, device.interface_version) == ("CPU", 4)
        assert [extension.name for extension in device.extensions] == ["org.nnhal.litert"]
        assert "CpuRef" in device.version
        assert device.capabilities.if_performance.exec_time > 0
        assert [backend.id for backend in device.backends()] == ["CpuAcc", "CpuRef"]
        assert device.supported_operations(ADD) == [True]


def test_unknown_device_is_rejected(service: Service) -> None:
    with pytest.raises(nnhal.HalError, match="no device 'other'"):
        nnhal.connect(service.target, device="other")


def test_no_service_at_the_address() -> None:
    with pytest.raises(nnhal.DeadObjectError, match=r"no response from 127\.0\.0\.1:1: connection refused"):
        nnhal.connect("127.0.0.1:1", timeout=0.2)


def test_invalid_inputs_are_rejected(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(ADD).result(60) as prepared:
        x = np.ones((2, 3), np.float32)
        for inputs, message in (
            ([x], "1 inputs given; the model takes 2"),
            ([x, x.astype(np.float64)], "input 1 is float64; the model takes float32"),
            ([x, np.ones((2, 4), np.float32)], r"input 1 has shape \[2, 4\]; the model takes \[0, 3\]"),
            ({"a": x}, "no input is named 'a'"),
        ):
            with pytest.raises(nnhal.HalError, match=message) as caught:
                prepared.execute(inputs)  # type: ignore[arg-type]
            assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)


def test_large_tensors_go_through_memory(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(ADD).result(60) as prepared:
        x = np.random.default_rng(0).standard_normal((500_000, 3)).astype(np.float32)  # 6 MB, more than a message holds
        outputs = prepared.execute([x, x], measure_timing=True)
        np.testing.assert_array_equal(outputs[0], x + x)
        assert 0 < outputs.timing.time_on_device_ns <= outputs.timing.time_in_driver_ns


@pytest.mark.slow
def test_concurrent_preparations_and_executions(service: Service) -> None:
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with nnhal.connect(service.target, timeout=60) as device:
            for _ in range(4):
                prepared = device.prepare(ADD).result(60)
                for _ in range(4):
                    a, b = rng.standard_normal((2, int(rng.integers(1, 50)), 3)).astype(np.float32)
                    np.testing.assert_array_equal(prepared.execute([a, b])[0], a + b)

    run_concurrently(50, work)


def test_released_model_and_closed_session_are_unknown(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        events = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
        handle = events[1].notify.prepared_model
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        for _ in range(4):  # the service caches the validation of the request; the handle is still checked
            assert raw.prepared_model.ExecuteSynchronously(request).output_sufficient_size
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=[handle, b"unknown"]))
        with pytest.raises(grpc.RpcError) as caught:
            raw.prepared_model.ExecuteSynchronously(request)
        assert error_detail(caught.value).kind == ErrorKind.UNKNOWN_HANDLE
        raw.sessions.Close(session_pb2.CloseRequest(session=raw.session))
        with pytest.raises(grpc.RpcError) as caught:
            raw.prepared_model.ExecuteSynchronously(request)
        assert error_detail(caught.value).kind == ErrorKind.SESSION_LOST


def test_models_of_other_sessions_look_unknown(service: Service) -> None:
    with open_raw_session(service.target) as mine, open_raw_session(service.target) as theirs:
        handle = list(theirs.device.PrepareModel(prepare_request(theirs, add_chain(1))))[1].notify.prepared_model
        details = []
        for wrong in (handle, b"\0" * 16):
            with pytest.raises(grpc.RpcError) as caught:
                mine.prepared_model.ExecuteSynchronously(execute_request(mine, wrong, [np.ones(2, np.float32)]))
            details.append(error_detail(caught.value))
            details[-1].request = ""
        assert details[0] == details[1]


def test_uploads_are_verified_and_shared(service: Service) -> None:
    data = np.random.default_rng(5).integers(0, 256, 3_000_000, np.uint8).tobytes()
    digest = hashlib.sha256(data).digest()
    with open_raw_session(service.target) as raw:

        def create(sha256: bytes) -> memory_pb2.CreateMemoryResponse:
            return raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=len(data), sha256=sha256))

        def upload(memory: bytes, content: bytes) -> memory_pb2.UploadResponse:
            return raw.memory.Upload(
                memory_pb2.UploadRequest(session=raw.session, memory=memory, offset=i, data=content[i : i + 2**20])
                for i in range(0, len(content), 2**20)
            )

        first = create(digest)
        assert not first.complete
        for wrong, message in (
            (data[:-1], "bytes were uploaded"),
            (data[:-1] + b"\0", "do not match the sha256 digest"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                upload(first.memory, wrong)
            assert message in error_detail(caught.value).reason
        assert not create(digest).complete
        assert upload(first.memory, data).written == len(data)
        assert create(digest).complete
        with open_raw_session(service.target) as other:
            request = memory_pb2.CreateMemoryRequest(session=other.session, size=len(data), sha256=digest)
            assert not other.memory.Create(request).complete, "another client learns that the service has the bytes"
        read = raw.memory.Read(memory_pb2.ReadRequest(session=raw.session, memory=first.memory, offset=1))
        assert b"".join(chunk.data for chunk in read) == data[1:]
        with pytest.raises(grpc.RpcError) as caught:
            upload(first.memory, data)
        assert "read-only" in error_detail(caught.value).reason


def test_limit_of_inline_bytes(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        model = add_chain(1)
        model.pools.add(inline=bytes(raw.opened.limits["inline_bytes"] + 1))
        events: list[object] = []
        with pytest.raises(grpc.RpcError) as caught:
            events.extend(raw.device.PrepareModel(prepare_request(raw, model)))
        assert (error_detail(caught.value).kind, error_detail(caught.value).limit) == (ErrorKind.LIMIT, "inline_bytes")


def test_missed_deadline_is_a_grpc_status_too(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(2000))))[1].notify.prepared_model
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.deadline_ns = 1
        with pytest.raises(grpc.RpcError) as caught:
            raw.prepared_model.ExecuteSynchronously(request)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert error_detail(caught.value).status in (5, 6)


def test_health_and_reflection(service: Service) -> None:
    with grpc.insecure_channel(service.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "nnhal.v1.Device", "nnhal.v1.Burst"):
            status = health.Check(health_pb2.HealthCheckRequest(service=name)).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        (response,) = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        names = {service.name for service in response.list_services_response.service}
        assert {f"nnhal.v1.{n}" for n in ("Device", "PreparedModel", "Session", "MemoryService", "Cache")} <= names


def test_stop_is_graceful(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--device", "stopper")
    with open_raw_session(service.target) as raw:
        events = raw.sessions.Open(session_pb2.OpenRequest(session=raw.session))
        assert next(iter(events)).opened.session == raw.session
        assert stop_service(service) == 0
        assert next(iter(events)).closing.reason == "the service is stopping"
        assert list(events) == []
    log = service.log.read_text()
    assert "stopping" in log
    assert log.rstrip().endswith("stopped")
    assert "Traceback" not in log


def test_log_names_clients_and_cache_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = start_service(tmp_path, "--log-format", "json")
    monkeypatch.setattr("sys.argv", ["/home/user/classify.py"])
    with nnhal.connect(service.target), nnhal.connect(service.target, client_name="my app") as device:
        for _ in range(2):
            device.prepare(ADD, cache=True).result(60).close()
    assert stop_service(service) == 0
    entries = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    assert [entry["client"] for entry in entries if entry.get("event") == "session-opened"] == ["classify.py", "my app"]
    outcomes = [(e["event"], e.get("cache")) for e in entries if e.get("event") in ("cache-miss", "prepared")]
    assert outcomes == [("cache-miss", None), ("prepared", "saved"), ("prepared", "hit")]
    assert entries[-1]["event"] == "stopped"


def test_session_of_a_disconnected_client_ends(tmp_path: Path) -> None:
    service = start_service(tmp_path, NNHAL_SESSION_GRACE_S="0.2")
    with open_raw_session(service.target) as raw:
        list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
    assert wait_until(lambda: service.logged("its connection is gone"))
    assert service.logged("objects=1")
    stop_service(service)


def test_outputs_in_inline_pools_are_rejected(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.request.pools[1].pool.CopyFrom(types_pb2.Memory(inline=bytes(8)))
        request.request.outputs[0].location.length = 8
        with pytest.raises(grpc.RpcError) as caught:
            raw.prepared_model.ExecuteSynchronously(request)
        assert error_detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT


def test_model_keeps_its_memory(service: Service) -> None:
    """The memory handle may be released as soon as the preparation has ended."""
    weights = np.arange(60_000, dtype=np.float32).reshape(20_000, 3)
    model = model_of(Op.ADD, [(tensor(T.TENSOR_FLOAT32, weights.shape), 0), (X, 0), int32(0)], [X], constants=False)
    operands = list(model.main.operands)
    operands[0] = replace(
        operands[0], lifetime=OperandLifeTime.CONSTANT_POOL, location=DataLocation(0, 0, weights.nbytes)
    )
    main = Subgraph(tuple(operands), model.main.operations, (1,), model.main.output_indexes)
    model = replace(model, main=main, pools=(Memory.of(weights),))
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(model).result(60)
        _ = device.version
        x = np.ones((1, 3), np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(prepared.execute([x])[0], weights + 1)
