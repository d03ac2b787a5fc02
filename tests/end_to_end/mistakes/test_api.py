"""Mistakes in programs that use the client: each raises an exception whose text is one line that names the mistake.

Wrong types of arguments are in `tests/end_to_end/clients/test_first_use.py`, and failures to connect in
`tests/nnhal/client/test_connect_errors.py`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal.errors import InvalidArgumentError, InvalidTypeError
from nnhal.types import Operand
from nnhal_tools.demo.digits import MODEL
from tests.end_to_end.support.service_process import Service

T, Op = nnhal.OperandType, nnhal.OperationType
IMAGE = np.zeros((1, 8, 8, 1), np.float32)
UNKNOWN = "INVALID_ARGUMENT: no such object in this session; it was closed, or it belongs to another session"
CLOSED = "DEVICE_UNAVAILABLE: the device has been closed; connect and prepare again"
PLAIN = Operand(T.TENSOR_FLOAT32, (1, 4))


@dataclass(frozen=True)
class Objects:
    """Objects of two sessions. Attributes that begin with `closed` have been closed."""

    target: str
    device: Any
    prepared: Any
    buffer: Any
    other_prepared: Any
    other_buffer: Any
    closed_device: Any
    closed_model: Any
    closed_prepared: Any
    closed_buffer: Any
    closed_burst: Any


@pytest.fixture(scope="module")
def objects(service: Service) -> Iterator[Objects]:
    closed = nnhal.connect(service.target)
    closed_model = closed.prepare(MODEL).result(60)
    closed.close()
    with nnhal.connect(service.target) as device, nnhal.connect(service.target) as other:
        prepared, closed_prepared, other_prepared = (each.prepare(MODEL).result(60) for each in (device, device, other))
        buffers = [each.allocate(inputs=[(model, 0)]) for each, model in ((device, prepared), (other, other_prepared))]
        closed_buffer = device.allocate(inputs=[(prepared, 0)])
        closed_burst = prepared.burst()
        for each in (closed_buffer, closed_burst, closed_prepared):
            each.close()
        yield Objects(
            service.target,
            device,
            prepared,
            buffers[0],
            other_prepared,
            buffers[1],
            closed,
            closed_model,
            closed_prepared,
            closed_buffer,
            closed_burst,
        )


def builder(build: Callable[[nnhal.ModelBuilder, Any], object]) -> Callable[[Objects], object]:
    """Return a call that builds a model, from a function of a builder and an input [1,4]."""

    def call(_: Objects) -> object:
        model = nnhal.ModelBuilder()
        return build(model, model.input(T.TENSOR_FLOAT32, [1, 4], name="x"))

    return call


Call = Callable[[Objects], object]
HAL = nnhal.HalError

MISTAKES: dict[str, tuple[Call, type[Exception], str]] = {
    # connecting
    "port": (lambda _: nnhal.connect("50051"), HAL, "INVALID_ARGUMENT: invalid address '50051'; expected HOST:PORT<*>"),
    "timeout 0": (
        lambda o: nnhal.connect(o.target, timeout=0),
        HAL,
        "INVALID_ARGUMENT: timeout is 0; expected a positive number of seconds",
    ),
    "timeout nan": (
        lambda o: nnhal.connect(o.target, timeout=float("nan")),
        HAL,
        "INVALID_ARGUMENT: timeout is nan; expected a positive number of seconds",
    ),
    "transport": (
        lambda o: nnhal.connect(o.target, transport="shm"),  # type: ignore[arg-type]
        HAL,
        "INVALID_ARGUMENT: transport is 'shm'; expected one of 'auto', 'grpc'",
    ),
    "device": (
        lambda o: nnhal.connect(o.target, device="npu"),
        HAL,
        "INVALID_ARGUMENT: there is no device 'npu'; expected one of nnhal",
    ),
    "name in the package": (
        lambda _: nnhal.conect,
        AttributeError,
        "module 'nnhal' has no attribute 'conect'",
    ),
    # preparing
    "missing model": (
        lambda o: o.device.prepare("none.tflite"),
        FileNotFoundError,
        "[Errno 2] No such file or directory: 'none.tflite'",
    ),
    "folder as a model": (
        lambda o: o.device.prepare(Path(__file__).parent),
        IsADirectoryError,
        "[Errno 21] Is a directory: '<*>'",
    ),
    "another file as a model": (
        lambda o: o.device.prepare(__file__),
        nnhal.tflite.TfliteError,
        "test_api.py: is not a .tflite file: the identifier TFL3 is missing",
    ),
    "bytes of another file as a model": (
        lambda o: o.device.prepare(b"TFL3"),
        nnhal.tflite.TfliteError,
        "model: is not a .tflite file: the identifier TFL3 is missing",
    ),
    "number as a model": (
        lambda o: o.device.prepare(5),
        TypeError,
        "model is 5 (int); expected a nnhal.Model, or the path or the bytes of a .tflite file",
    ),
    "priority": (
        lambda o: o.device.prepare(MODEL, priority=99).result(60),
        HAL,
        "INVALID_ARGUMENT: V-PREP-02: the priority is 99, must be 0 to 2",
    ),
    "token": (
        lambda o: o.device.prepare(MODEL, token=b"abc").result(60),
        HAL,
        "INVALID_ARGUMENT: the cache token has 3 bytes, must have 32",
    ),
    "expired preparation": (
        lambda o: o.device.prepare(MODEL, deadline=0).result(60),
        HAL,
        "MISSED_DEADLINE_PERSISTENT: the deadline had passed before the preparation began",
    ),
    "endless deadline": (
        lambda o: o.device.prepare(MODEL, deadline=float("inf")).result(60),
        HAL,
        "INVALID_ARGUMENT: deadline is inf; expected a number of seconds",
    ),
    "forgotten result()": (
        lambda o: o.device.prepare(MODEL).execute([IMAGE]),
        AttributeError,
        "'Preparation' object has no attribute 'execute'; result() returns the prepared model",
    ),
    # executing
    "shape": (
        lambda o: o.prepared.execute([IMAGE[:, :7]]),
        HAL,
        "INVALID_ARGUMENT: input 0 (image) has shape [1, 7, 8, 1]; the model takes [1, 8, 8, 1]",
    ),
    "dtype": (
        lambda o: o.prepared.execute([IMAGE.astype(np.float64)]),
        HAL,
        "INVALID_ARGUMENT: input 0 (image) is float64; the model takes float32",
    ),
    "byte order": (
        lambda o: o.prepared.execute([IMAGE.astype(">f4")]),
        HAL,
        "INVALID_ARGUMENT: input 0 (image) is >f4; the model takes float32",
    ),
    "text as an input": (
        lambda o: o.prepared.execute([["a"]]),
        HAL,
        "INVALID_ARGUMENT: input 0 (image) cannot be converted to float32: could not convert string to float: 'a'",
    ),
    "two inputs": (
        lambda o: o.prepared.execute([IMAGE, IMAGE]),
        HAL,
        "INVALID_ARGUMENT: 2 inputs given; the model takes 1",
    ),
    "no inputs": (lambda o: o.prepared.execute([]), HAL, "INVALID_ARGUMENT: 0 inputs given; the model takes 1"),
    "unknown name": (
        lambda o: o.prepared.execute({"images": IMAGE}),
        HAL,
        "INVALID_ARGUMENT: no input is named 'images'; there are image",
    ),
    "missing name": (
        lambda o: o.prepared.execute({}),
        HAL,
        "INVALID_ARGUMENT: there is no value for input 'image'; None omits an optional input",
    ),
    "input of a burst": (
        lambda o: o.prepared.burst().execute([IMAGE[0]]),
        HAL,
        "INVALID_ARGUMENT: input 0 (image) has shape [8, 8, 1]; the model takes [1, 8, 8, 1]",
    ),
    "output name": (
        lambda o: o.prepared.execute([IMAGE])["labels"],
        KeyError,
        "\"there is no output 'labels'; there are probabilities\"",
    ),
    "expired execution": (
        lambda o: o.prepared.execute([IMAGE], deadline=0),
        HAL,
        "MISSED_DEADLINE_PERSISTENT: the deadline had passed before the execution began",
    ),
    "negative deadline": (
        lambda o: o.prepared.execute([IMAGE], deadline=-1),
        HAL,
        "INVALID_ARGUMENT: V-EXECARG-01: the deadline is -1000000000 ns, must be >= -1",
    ),
    # buffers
    "no role": (
        lambda o: o.device.allocate(),
        HAL,
        "INVALID_ARGUMENT: V-ALLOC-02: a buffer needs a role: an input or an output of a prepared model",
    ),
    "role name": (
        lambda o: o.device.allocate(inputs=[(o.prepared, "images")]),
        HAL,
        "INVALID_ARGUMENT: there is no input 'images'; there are image",
    ),
    "role of another session": (
        lambda o: o.device.allocate(inputs=[(o.other_prepared, 0)]),
        HAL,
        UNKNOWN,
    ),
    "uninitialized buffer": (
        lambda o: o.buffer.read(),
        HAL,
        "GENERAL_FAILURE: V-TOKEN-05: the buffer is uninitialized",
    ),
    "value of a buffer": (
        lambda o: o.buffer.write(IMAGE[0]),
        HAL,
        "INVALID_ARGUMENT: the value has shape [8, 8, 1]; the buffer takes [1, 8, 8, 1]",
    ),
    "buffer of another role": (
        lambda o: o.prepared.execute([IMAGE], outputs=[o.buffer]),
        HAL,
        "INVALID_ARGUMENT: V-TOKEN-01: output 0 of the request is in a buffer that was not allocated for output 0 of "
        "this prepared model",
    ),
    "buffer of another session": (
        lambda o: o.prepared.execute([o.other_buffer]),
        HAL,
        "INVALID_ARGUMENT: V-REQ-02: token <*> names no live buffer with a role in this prepared model",
    ),
    # closed objects
    "closed device": (lambda o: o.closed_device.prepare(MODEL).result(), nnhal.SessionLostError, CLOSED),
    "backends of a closed device": (lambda o: o.closed_device.backends(), nnhal.SessionLostError, CLOSED),
    "model of a closed device": (lambda o: o.closed_model.execute([IMAGE]), nnhal.SessionLostError, CLOSED),
    "closed model": (lambda o: o.closed_prepared.execute([IMAGE]), HAL, UNKNOWN),
    "burst of a closed model": (lambda o: o.closed_prepared.burst(), HAL, UNKNOWN),
    "closed buffer": (lambda o: o.closed_buffer.write(IMAGE), HAL, UNKNOWN),
    "closed burst": (
        lambda o: o.closed_burst.execute([IMAGE]),
        HAL,
        "DEVICE_UNAVAILABLE: the burst has been closed",
    ),
    # building models; the builder has more tests
    "output of an operation": (
        builder(lambda b, x: b.add(Op.RELU, x)),  # type: ignore[call-overload]
        TypeError,
        "add() has neither of output= and outputs=; expected one of them",
    ),
    "name of an operation": (
        builder(lambda b, x: b.add("RELU", x, output=PLAIN)),  # type: ignore[call-overload]
        TypeError,
        "type of operation 0 of main is 'RELU' (str); expected an OperationType",
    ),
    "shape of an output": (
        builder(lambda b, x: b.add(Op.RELU, x, output=(1, 4))),  # type: ignore[call-overload]
        TypeError,
        "operation 0 of main (RELU): output 0 is (1, 4) (tuple); expected an Operand",
    ),
    "name of a type": (
        builder(lambda b, _: b.input("float32", [1])),  # type: ignore[arg-type]
        TypeError,
        "type of input 1 of main is 'float32' (str); expected an OperandType",
    ),
    "number as an output": (
        builder(lambda b, _: b.output(5)),  # type: ignore[arg-type]
        TypeError,
        "output 0 of main is 5 (int); expected the result of `add`",
    ),
    "number of arguments": (
        builder(lambda b, x: b.add(Op.ADD, x, output=PLAIN)),
        HAL,
        "INVALID_ARGUMENT: V-OPERATION-04: operation 0 of main (ADD): has 1 inputs; it takes 3: <*>",
    ),
    "dtype of a constant": (
        builder(lambda b, x: b.add(Op.ADD, x, np.zeros((1, 4), np.float64), 0, output=PLAIN)),
        HAL,
        "INVALID_ARGUMENT: V-OPERATION-04: operation 0 of main (ADD): input 1 (input1) is an array of float64 [1, 4], "
        "not TENSOR_FLOAT32: convert it with astype(np.float32)",
    ),
    "operand of another builder": (
        builder(lambda _, x: nnhal.ModelBuilder().add(Op.RELU, x, output=PLAIN)),
        HAL,
        "INVALID_ARGUMENT: operation 0 of main (RELU): input 0 is x (TENSOR_FLOAT32 [1, 4]) of another model's builder",
    ),
    "model without outputs": (
        builder(lambda b, _: b.build()),
        HAL,
        "INVALID_ARGUMENT: V-SUBGRAPH-02: main has no operations; `add` at least one",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_reported_in_one_line(
    objects: Objects, call: Call, kind: type[Exception], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        call(objects)
    also_of_python = InvalidArgumentError, InvalidTypeError
    assert type(caught.value) in ((kind, *also_of_python) if kind is HAL else (kind,))
    assert re.fullmatch(re.escape(message).replace(re.escape("<*>"), ".+"), str(caught.value)), str(caught.value)
    assert capfd.readouterr() == ("", "")
    # neither a mistake nor its report does harm
    assert objects.prepared.execute([IMAGE])[0].shape == (1, 10)
