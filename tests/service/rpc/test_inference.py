"""The Open Inference Protocol over gRPC: its calls, requests that do not fit, and identities."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from nnhal.types import AnyArray
from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import token_digest
from nnhal_service.metrics.exposition import render
from nnhal_service.open_inference.shared_memory import FOLDER, RegionPart
from nnhal_service.rpc.inference import read_infer_request
from nnhal_service.server import Server
from nnhal_service.sessions.limits import LIMITS
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.nnhal.tflite.build import Op, Tensor, build, options
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, put

Infer = messages.ModelInferRequest
ONES = np.ones(2, np.float32)


def wide() -> bytes:
    """Return a file whose tensors have integers of 64 bits, which NNAPI represents with 32 bits."""
    x, y = Tensor((1, 2), "INT64", name="x"), Tensor((2, 1), "INT64", name="y")
    return build(Op("RESHAPE", [x, Tensor((2,), "INT32", [2, 1])], [y], options("Reshape", newShape=[2, 1])))


def quantized() -> bytes:
    x = Tensor((2,), "UINT8", scale=(0.5,), zero_point=(3,), name="x")
    return build(Op("RELU", [x], [Tensor((2,), "UINT8", scale=(0.5,), zero_point=(3,), name="y")]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    put(folder / "add/1/model.tflite", adding(1))
    put(folder / "add/3/model.tflite", adding(3))
    put(folder / "add/config.toml", b'labels = ["cat", "dog"]')
    put(folder / "wide.tflite", wide())
    put(folder / "quantized.tflite", quantized())
    put(folder / "count.tflite", counting())
    put(folder / "broken.tflite", b"no model")
    settings = Settings(listen=("127.0.0.1:0",), cache_bytes=0, models=str(folder), models_poll_s=1e6, models_shm=True)
    with Server(settings) as running:
        yield running


@pytest.fixture(scope="module")
def stub(server: Server) -> Iterator[GRPCInferenceServiceStub]:
    with grpc.insecure_channel(server.addresses[0]) as channel:
        yield GRPCInferenceServiceStub(channel)


def infer_request(value: AnyArray, model: str = "add", datatype: str = "FP32", **more: Any) -> Infer:
    request = Infer(model_name=model, raw_input_contents=[value.tobytes()], **more)
    request.inputs.add(name="x", datatype=datatype, shape=value.shape)
    return request


def output(response: messages.ModelInferResponse, dtype: type = np.float32) -> list[float]:
    (raw,) = response.raw_output_contents
    return list(np.frombuffer(raw, dtype))


def test_health_and_metadata(stub: GRPCInferenceServiceStub) -> None:
    assert stub.ServerLive(messages.ServerLiveRequest()).live
    assert wait_until(lambda: stub.ServerReady(messages.ServerReadyRequest()).ready, 60)
    assert "model_repository" in stub.ServerMetadata(messages.ServerMetadataRequest()).extensions
    ready = {
        name: stub.ModelReady(messages.ModelReadyRequest(name=name)).ready
        for name in ("add", "broken", "other", "quantized")
    }
    assert ready == {"add": True, "broken": False, "other": False, "quantized": True}
    metadata = stub.ModelMetadata(messages.ModelMetadataRequest(name="quantized"))
    assert (metadata.name, list(metadata.versions), metadata.platform) == ("quantized", ["1"], "tensorflow_lite")
    (tensor,) = metadata.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "UINT8", [2])
    assert (tensor.parameters["scale"].double_param, tensor.parameters["zero_point"].int64_param) == (0.5, 3)
    config = stub.ModelConfig(messages.ModelConfigRequest(name="wide")).config
    assert (config.input[0].data_type, list(config.output[0].dims)) == (messages.TYPE_INT64, [2, 1])


def test_versions(stub: GRPCInferenceServiceStub) -> None:
    assert output(stub.ModelInfer(infer_request(ONES))) == [4, 4]
    response = stub.ModelInfer(infer_request(ONES, model_version="1", id="seven"))
    assert output(response) == [2, 2]
    assert (response.model_name, response.model_version, response.id) == ("add", "1", "seven")
    assert [(each.name, each.datatype, list(each.shape)) for each in response.outputs] == [("y", "FP32", [2])]


def test_typed_contents(stub: GRPCInferenceServiceStub) -> None:
    request = Infer(model_name="add")
    request.inputs.add(name="x", datatype="FP32", shape=[2]).contents.fp32_contents.extend([1, 2])
    assert output(stub.ModelInfer(request)) == [4, 5]
    raw = infer_request(ONES)
    raw.inputs[0].contents.SetInParent()  # as MLServer's client does
    assert output(stub.ModelInfer(raw)) == [4, 4]
    request = Infer(model_name="quantized")
    request.inputs.add(name="x", datatype="UINT8", shape=[2]).contents.uint_contents.extend([0, 200])
    assert output(stub.ModelInfer(request), np.uint8) == [3, 200]


def test_integers_of_64_bits(stub: GRPCInferenceServiceStub) -> None:
    value = np.array([[7, -(2**31)]])
    assert output(stub.ModelInfer(infer_request(value, "wide", "INT64")), np.int64) == [7, -(2**31)]
    with pytest.raises(grpc.RpcError, match="does not fit into int32"):
        stub.ModelInfer(infer_request(value * 2, "wide", "INT64"))


def test_classification(stub: GRPCInferenceServiceStub) -> None:
    request = infer_request(np.array([1, 5], np.float32))
    request.outputs.add(name="y").parameters["classification"].int64_param = 1
    response = stub.ModelInfer(request)
    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == ("BYTES", [1])
    assert response.raw_output_contents[0] == b"\x0e\0\0\0008.000000:1:dog"


NO_INPUT = Infer(model_name="add")
TWO_RAW = infer_request(ONES)
TWO_RAW.raw_input_contents.append(b"")
BOTH = infer_request(ONES)
BOTH.inputs[0].contents.fp32_contents.append(1)
WRONG_FIELD = Infer(model_name="add")
WRONG_FIELD.inputs.add(name="x", datatype="FP32", shape=[2]).contents.int_contents.extend([1, 2])
TOO_LARGE = Infer(model_name="quantized")
TOO_LARGE.inputs.add(name="x", datatype="UINT8", shape=[2]).contents.uint_contents.extend([1, 256])
OTHER_INPUT = infer_request(ONES)
OTHER_INPUT.inputs[0].name = "z"
OTHER_OUTPUT = infer_request(ONES)
OTHER_OUTPUT.outputs.add(name="z")
TWICE = infer_request(ONES)
for _ in range(2):
    TWICE.outputs.add(name="y")
TIMEOUT = infer_request(ONES)
TIMEOUT.parameters["timeout"].string_param = "soon"


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (infer_request(ONES, "other"), grpc.StatusCode.NOT_FOUND, "model 'other' is not found"),
        (infer_request(ONES, model_version="2"), grpc.StatusCode.NOT_FOUND, "has no version 2; it has 1, 3"),
        (infer_request(ONES, model_version="x"), grpc.StatusCode.NOT_FOUND, "versions are numbers"),
        (infer_request(ONES, model_version="9" * 5000), grpc.StatusCode.NOT_FOUND, "has no version '9999"),
        (infer_request(ONES, "broken"), grpc.StatusCode.UNAVAILABLE, "identifier TFL3 is missing"),
        (infer_request(ONES, datatype="INT32"), None, "input 'x' data-type is 'INT32', but model 'add' expects 'FP32'"),
        (infer_request(ONES[:1]), None, r"unexpected shape for input 'x' for model 'add'. Expected \[2\], got \[1\]"),
        (infer_request(ONES[None]), None, r"Expected \[2\], got \[1,2\]"),
        (NO_INPUT, None, "expected 1 inputs but got 0 inputs for model 'add'"),
        (OTHER_INPUT, None, "unexpected inference input 'z' for model 'add'"),
        (OTHER_OUTPUT, None, "unexpected inference output 'z' for model 'add'"),
        (TWICE, None, "inference output 'y' of model 'add' is requested twice"),
        (TWO_RAW, None, "expected 1 raw input contents, one for each input that has them, got 2"),
        (BOTH, None, "contents field must not be specified when using raw_input_contents"),
        (WRONG_FIELD, None, "has int_contents; expected fp32_contents"),
        (TOO_LARGE, None, "has a value that is not of UINT8"),
        (TIMEOUT, None, "parameter 'timeout' is 'soon'; expected a number"),
    ],
)
def test_request_that_does_not_fit(
    stub: GRPCInferenceServiceStub, request_: Infer, code: grpc.StatusCode | None, text: str
) -> None:
    with pytest.raises(grpc.RpcError, match=text) as caught:
        stub.ModelInfer(request_)
    assert caught.value.code() == (code or grpc.StatusCode.INVALID_ARGUMENT)


def test_raw_contents_are_not_copied() -> None:
    encoded = infer_request(ONES).SerializeToString()
    (tensor,) = read_infer_request(encoded).inputs
    assert not isinstance(tensor.data, RegionPart)
    assert np.shares_memory(tensor.data, np.frombuffer(encoded, np.uint8))


def test_requests_that_differ_in_their_contents_only() -> None:
    encoded = [infer_request(np.full(2, value, np.float32)).SerializeToString() for value in (1, 2)]
    first, second, again = (read_infer_request(each) for each in (*encoded, encoded[0]))
    values = [np.frombuffer(each.inputs[0].data, np.float32).tolist() for each in (first, second, again)]  # type: ignore[arg-type]
    assert values == [[1, 1], [2, 2], [1, 1]]
    assert (first.model, first.inputs[0].shape) == (second.model, second.inputs[0].shape) == ("add", (2,))
    for _ in range(2):
        with pytest.raises(HalError, match="expected 1 raw input contents, one for each input that has them, got 2"):
            read_infer_request(TWO_RAW.SerializeToString())


@pytest.mark.parametrize("extra", [b"\x40\x01", b"\xfa\x7f\x01a"])
def test_unknown_fields_are_skipped(extra: bytes) -> None:
    (tensor,) = read_infer_request(infer_request(ONES).SerializeToString() + extra).inputs
    assert not isinstance(tensor.data, RegionPart)
    assert tensor.data.tobytes() == ONES.tobytes()


def test_repository(stub: GRPCInferenceServiceStub) -> None:
    def index() -> dict[str, str]:
        models = stub.RepositoryIndex(messages.RepositoryIndexRequest()).models
        return {f"{model.name}/{model.version}": model.state for model in models}

    states = dict.fromkeys(("add/1", "add/3", "count/1", "quantized/1", "wide/1"), "READY") | {
        "broken/1": "UNAVAILABLE"
    }
    assert index() == states
    ready = stub.RepositoryIndex(messages.RepositoryIndexRequest(ready=True)).models
    assert "broken" not in {model.name for model in ready}
    stub.RepositoryModelUnload(messages.RepositoryModelUnloadRequest(model_name="wide"))
    assert index() == {**states, "wide/1": "UNAVAILABLE"}
    stub.RepositoryModelLoad(messages.RepositoryModelLoadRequest(model_name="wide"))
    assert index() == states
    for name, code in (("broken", grpc.StatusCode.UNAVAILABLE), ("other", grpc.StatusCode.NOT_FOUND)):
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryModelLoad(messages.RepositoryModelLoadRequest(model_name=name))
        assert caught.value.code() == code


def test_calls_count_for_their_client(server: Server, stub: GRPCInferenceServiceStub) -> None:
    for _ in range(2):
        stub.ModelInfer(infer_request(ONES))
    (session,) = server.sessions.all()
    assert (session.client, session.number_of("session_calls")) == ("open inference protocol", 0)
    calls = server.metrics.snapshot().values["nnhal_calls"]
    assert sum(count for labels, count in calls.items() if labels[3:] == ("add", "3", "inference", "ok")) >= 2


def test_identities(tmp_path: Path) -> None:
    put(tmp_path / "models/seen.tflite", adding(1))
    put(tmp_path / "models/secret.tflite", adding(2))
    (tmp_path / "tokens").write_text(
        "\n".join(f"{name} sha256:{token_digest(name).hex()}" for name in ("a", "b")) + "\n"
    )
    policy = Policy(identities={"token:a": IdentityRules(models=("se*n",)), "token:b": IdentityRules(administer=True)})
    settings = Settings(
        listen=("127.0.0.1:0",),
        cache_bytes=0,
        models=str(tmp_path / "models"),
        tokens=tmp_path / "tokens",
        policy=policy,
        backends=("CpuRef",),
    )
    with Server(settings) as running, grpc.insecure_channel(running.addresses[0]) as channel:
        stub = GRPCInferenceServiceStub(channel)
        a, b = ((("authorization", f"Bearer {name}"),) for name in "ab")
        index = messages.RepositoryIndexRequest()
        assert [model.name for model in stub.RepositoryIndex(index, metadata=a).models] == ["seen"]
        assert [model.name for model in stub.RepositoryIndex(index, metadata=b).models] == ["secret", "seen"]
        assert output(stub.ModelInfer(infer_request(ONES, "seen"), metadata=a)) == [2, 2]
        unload = messages.RepositoryModelUnloadRequest(model_name="seen")
        refused: list[tuple[Any, Any, Any, grpc.StatusCode]] = [
            (stub.ModelInfer, infer_request(ONES, "secret"), a, grpc.StatusCode.PERMISSION_DENIED),
            (stub.RepositoryModelUnload, unload, a, grpc.StatusCode.PERMISSION_DENIED),
            (stub.ModelInfer, infer_request(ONES, "seen"), (), grpc.StatusCode.UNAUTHENTICATED),
        ]
        for call, message, metadata, code in refused:
            with pytest.raises(grpc.RpcError) as caught:
                call(message, metadata=metadata)
            assert caught.value.code() == code
        stub.RepositoryModelUnload(unload, metadata=b)
        assert stub.ServerLive(messages.ServerLiveRequest()).live


def counted(stub: GRPCInferenceServiceStub, **parameters: Any) -> float:
    return output(stub.ModelInfer(step_request(**parameters)))[0]


def step_request(**parameters: Any) -> Infer:
    request = infer_request(ONES, "count")
    for name, value in parameters.items():
        kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "int64"
        setattr(request.parameters[f"sequence_{name}"], f"{kind}_param", value)
    return request


def test_sequences_keep_their_states(stub: GRPCInferenceServiceStub) -> None:
    assert [counted(stub), counted(stub)] == [1, 1]
    assert counted(stub, id=7, start=True) == 1
    assert counted(stub, id="seven", start=True) == 1
    assert [counted(stub, id=7), counted(stub, id=7), counted(stub, id="seven")] == [2, 3, 2]
    with pytest.raises(grpc.RpcError, match="unexpected shape"):
        wrong = step_request(id=7)
        wrong.inputs[0].shape[0] = 3
        stub.ModelInfer(wrong)
    assert counted(stub, id=7, end=True) == 4
    with pytest.raises(grpc.RpcError, match="sequence 7 to model 'count' must specify the START flag"):
        counted(stub, id=7)
    assert counted(stub, id="seven", start=True, end=True) == 1


def test_sequences_are_bounded(stub: GRPCInferenceServiceStub) -> None:
    for number in range(1, LIMITS["sequences"].default + 1):
        counted(stub, id=number, start=True)
    with pytest.raises(grpc.RpcError, match="has 257 characters; at most 256"):
        counted(stub, id="a" * 257, start=True)
    with pytest.raises(grpc.RpcError, match="limit sequences"):
        counted(stub, id=LIMITS["sequences"].default + 1, start=True)
    for number in range(1, LIMITS["sequences"].default + 1):
        counted(stub, id=number, end=True)


def test_stream_goes_on_after_an_error(server: Server, stub: GRPCInferenceServiceStub) -> None:
    requests = [step_request(id=1, start=True), infer_request(ONES, "other"), step_request(id=1, end=True)]
    first, second, third = stub.ModelStreamInfer(iter(requests))
    assert (output(first.infer_response)[0], output(third.infer_response)[0]) == (1, 2)
    assert (second.error_message, second.HasField("infer_response")) == (
        "INVALID_ARGUMENT: model 'other' is not found",
        False,
    )
    text, _ = render(server.metrics.snapshot(), "")
    assert 'method="inference.GRPCInferenceService.ModelStreamInfer",status="invalid_argument"} 1' in text.decode()


def test_statistics(stub: GRPCInferenceServiceStub) -> None:
    def read(**fields: str) -> list[messages.ModelStatistics]:
        return list(stub.ModelStatistics(messages.ModelStatisticsRequest(**fields)).model_stats)

    (before,) = read(name="add", version="3")
    stub.ModelInfer(infer_request(ONES))
    with pytest.raises(grpc.RpcError):
        stub.ModelInfer(infer_request(np.ones(3, np.float32)))
    (after,) = read(name="add", version="3")
    old, new = before.inference_stats, after.inference_stats
    stages = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    assert [getattr(new, name).count - getattr(old, name).count for name in stages] == [1] * 6
    assert (after.inference_count - before.inference_count, after.last_inference > 0) == (1, True)
    assert new.success.ns - old.success.ns >= new.compute_infer.ns - old.compute_infer.ns > 0
    assert [(each.name, each.version) for each in read(name="add")] == [("add", "1"), ("add", "3")]
    assert {each.name for each in read()} == {"add", "broken", "count", "quantized", "wide"}
    for fields in ({"name": "other"}, {"name": "add", "version": "2"}):
        with pytest.raises(grpc.RpcError) as caught:
            read(**fields)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.fixture
def region(stub: GRPCInferenceServiceStub) -> Iterator[Path]:
    """Yield the file of a region named "tensors", whose first 8 bytes are two ones, and whose next 8 are free."""
    path = FOLDER / f"nnhal-test-{os.getpid()}"
    path.write_bytes(ONES.tobytes() + bytes(8))
    register = messages.SystemSharedMemoryRegisterRequest
    stub.SystemSharedMemoryRegister(register(name="tensors", key=f"/{path.name}", byte_size=16))
    yield path
    stub.SystemSharedMemoryUnregister(messages.SystemSharedMemoryUnregisterRequest())
    path.unlink()


def shared_request(region: str = "tensors", offset: int = 8, size: int = 8) -> Infer:
    """Return a request whose input is at the beginning of a region, and its output elsewhere."""
    request = Infer(model_name="add", model_version="1")
    tensors: tuple[Any, ...] = (request.inputs.add(name="x", datatype="FP32", shape=[2]), request.outputs.add(name="y"))
    for tensor, start, length in zip(tensors, (0, offset), (8, size), strict=True):
        tensor.parameters["shared_memory_region"].string_param = region
        tensor.parameters["shared_memory_offset"].int64_param = start
        tensor.parameters["shared_memory_byte_size"].int64_param = length
    return request


def test_shared_memory(stub: GRPCInferenceServiceStub, region: Path) -> None:
    response = stub.ModelInfer(shared_request())
    (described,) = response.outputs
    assert described.parameters["shared_memory_region"].string_param == "tensors"
    assert list(response.raw_output_contents) == [b""]
    assert np.frombuffer(region.read_bytes(), np.float32).tolist() == [1, 1, 2, 2]
    status = stub.SystemSharedMemoryStatus(messages.SystemSharedMemoryStatusRequest())
    assert {name: (each.key, each.byte_size) for name, each in status.regions.items()} == {
        "tensors": (f"/{region.name}", 16)
    }


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (shared_request("other"), "Unable to find system shared memory region: 'other'"),
        (shared_request(offset=12), "Invalid offset"),
        (shared_request(offset=-8), "Invalid offset"),
        (shared_request(offset=2**62), "Invalid offset"),
        (shared_request(size=4), r"for output 'y' \(4 bytes\) should be at least 8 bytes"),
    ],
    ids=lambda value: "" if isinstance(value, Infer) else None,
)
def test_shared_memory_that_does_not_fit(
    stub: GRPCInferenceServiceStub, region: Path, request_: Infer, text: str
) -> None:
    before = region.read_bytes()
    with pytest.raises(grpc.RpcError, match=text):
        stub.ModelInfer(request_)
    assert region.read_bytes() == before


def test_negative_sizes_leave_no_memory_to_others() -> None:
    request = shared_request()
    request.inputs[0].parameters["shared_memory_byte_size"].int64_param = -(2**63)
    with pytest.raises(HalError, match="Invalid offset"):
        read_infer_request(request.SerializeToString())  # before the memory of its inputs is reserved


def test_region_that_its_client_truncates(stub: GRPCInferenceServiceStub, region: Path) -> None:
    os.truncate(region, 4)
    with pytest.raises(grpc.RpcError, match="has become smaller"):
        stub.ModelInfer(shared_request())
    assert stub.ServerLive(messages.ServerLiveRequest()).live


@pytest.mark.parametrize("key", ["", "/", "..", "/../passwd", "a/b", "/dev/shm/x", "none", "a" * 300])
def test_key_of_no_region(stub: GRPCInferenceServiceStub, key: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.SystemSharedMemoryRegister(messages.SystemSharedMemoryRegisterRequest(name="bad", key=key, byte_size=1))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_region_too_large_twice_or_a_link(stub: GRPCInferenceServiceStub, region: Path) -> None:
    link = region.with_name(f"{region.name}-link")
    link.symlink_to(region)
    register = messages.SystemSharedMemoryRegisterRequest
    try:
        for request, text in (
            (register(name="tensors", key=region.name, byte_size=16), "already in manager"),
            (register(name="a" * 257, key=region.name, byte_size=16), "has 257 characters; at most 256"),
            (register(name="large", key=region.name, byte_size=17), "it has 16 bytes"),
            (register(name="far", key=region.name, offset=2**63, byte_size=2**63), "it has 16 bytes"),
            (register(name="link", key=link.name, byte_size=16), "Unable to open shared memory region"),
        ):
            with pytest.raises(grpc.RpcError, match=text):
                stub.SystemSharedMemoryRegister(request)
    finally:
        link.unlink()


def mutated(randomness: random.Random) -> bytes:
    """Return an encoded request of which a few bytes may be changed, cut out, or repeated."""
    requests = (infer_request(ONES), step_request(id=1, start=True), shared_request(), Infer(model_name="add"))
    encoded = bytearray(randomness.choice(requests).SerializeToString())
    for _ in range(randomness.choice([1, 1, 2, 5])):
        start = randomness.randrange(len(encoded) + 1)
        replacement = (b"", randomness.randbytes(1), randomness.randbytes(4), encoded[:start])
        encoded[start : start + randomness.randrange(6)] = randomness.choice(replacement)
    return bytes(encoded)


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_mutated_requests(server: Server, stub: GRPCInferenceServiceStub, count: int) -> None:
    randomness = random.Random(int(os.environ.get("NNHAL_SEED", "1")))
    with grpc.insecure_channel(server.addresses[0]) as channel:
        infer: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer"
        )
        for _ in range(count):
            encoded = mutated(randomness)
            try:
                messages.ModelInferResponse.FromString(infer(encoded))
            except grpc.RpcError as error:
                expected = ("INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
                assert error.code().name in expected, (error, encoded)
    assert output(stub.ModelInfer(infer_request(ONES))) == [4, 4]
