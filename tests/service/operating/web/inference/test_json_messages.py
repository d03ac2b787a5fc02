"""Requests and responses in JSON and binary: what they become, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.inference import open_inference_pb2 as messages
from nnhal_service.operating.web.inference.json_messages import read_infer_request, write_infer_response

X = {"name": "x", "datatype": "FP32", "shape": [2]}
BYTES = np.array([1, 2], np.float32).tobytes()


def read(content: Any, tail: bytes = b"", length: int | None = None) -> messages.ModelInferRequest:
    head = json.dumps(content).encode()
    return read_infer_request("add", "1", head + tail, (length or len(head)) if tail or length else None).message


def test_values_in_json_and_in_binary_are_the_same() -> None:
    for data in ([1, 2], [[1], [2]], [1.0, 2.0]):
        assert list(read({"inputs": [X | {"data": data}]}).raw_input_contents) == [BYTES]
    binary = {"inputs": [X | {"parameters": {"binary_data_size": 8}}, X | {"data": [1, 2]}]}
    message = read(binary, BYTES)
    assert list(message.raw_input_contents) == [BYTES, BYTES]
    assert not message.inputs[0].parameters


@pytest.mark.parametrize(
    ("datatype", "dtype", "data"),
    [
        ("UINT64", np.uint64, [2**64 - 1, 1]),
        ("UINT64", np.uint64, [2**63 + 1, 1]),
        ("INT64", np.int64, [2**53 + 1, 1.0]),
        ("FP32", np.float32, [10**30, 1]),
    ],
)
def test_large_integers_are_exact(datatype: str, dtype: type, data: list[int]) -> None:
    message = read({"inputs": [X | {"datatype": datatype, "data": data}]})
    assert list(message.raw_input_contents) == [np.array(data, object).astype(dtype).tobytes()]


def test_fields() -> None:
    content = {
        "id": "seven",
        "parameters": {
            "priority": 1,
            "flag": True,
            "text": "a",
            "ratio": 0.5,
            "large": 2**63,
            "binary_data_output": True,
        },
        "inputs": [X | {"data": [1, 2], "parameters": {"extra": 1}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": False, "classification": 2}}],
        "unknown": 1,
    }
    request = read_infer_request("add", "1", json.dumps(content).encode(), None)
    message = request.message
    assert (message.model_name, message.model_version, message.id) == ("add", "1", "seven")
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in message.parameters.items()}
    assert kinds == {
        "priority": "int64_param",
        "flag": "bool_param",
        "text": "string_param",
        "ratio": "double_param",
        "large": "uint64_param",
    }
    assert message.inputs[0].parameters["extra"].int64_param == 1
    assert dict(message.outputs[0].parameters) == {"classification": messages.InferParameter(int64_param=2)}
    assert (request.binary, request.is_binary, request.is_bound) == ({"y": False}, True, False)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "not a JSON object"),
        ({"inputs": 1}, "inputs is 1; expected a list"),
        ({"inputs": [1]}, "inputs has an element that is not an object"),
        ({"inputs": [{}]}, "name is missing"),
        ({"inputs": [X | {"name": 1, "data": []}]}, "name is 1; expected a text"),
        ({"inputs": [X]}, "data is missing"),
        ({"inputs": [X | {"data": [1, "a"]}]}, "has a value that is not of FP32"),
        ({"inputs": [X | {"data": ["1", "2"]}]}, "has a value that is not of FP32"),
        ({"inputs": [X | {"data": [[1], [2, 3]]}]}, "has a value that is not of FP32"),
        ({"inputs": [X | {"datatype": "INT8", "data": [128]}]}, "has a value that is not of INT8"),
        ({"inputs": [X | {"datatype": "FP99", "data": []}]}, "data-type 'FP99'"),
        ({"inputs": [X | {"datatype": "BYTES", "data": ["a"]}]}, "data-type 'BYTES'; expected one of"),
        ({"inputs": [X | {"datatype": "UINT64", "data": [2**64 - 1, -1]}]}, "has a value that is not of UINT64"),
        ({"inputs": [X | {"data": [1, 10**400]}]}, "has a value that is not of FP32"),
        ({"inputs": [X | {"name": "\ud800", "data": [1, 2]}]}, "name is '.ud800', which UTF-8 cannot encode"),
        ({"inputs": [X | {"data": ["a" * 2**20, *"b" * 2**14]}]}, "has a value that is not of FP32"),  # 64 GiB in UCS-4
        ({"inputs": [X | {"shape": [1.5], "data": []}]}, "shape is"),
        ({"inputs": [X | {"shape": [2**63], "data": []}]}, "shape is"),
        ({"inputs": [X | {"parameters": {"binary_data_size": 1}}]}, "0 are left"),
        ({"inputs": [X | {"parameters": {"binary_data_size": -1}}]}, "0 are left"),
        ({"parameters": {"a": [1]}}, "parameter 'a'"),
        ({"parameters": {"a": -(2**63) - 1}}, "parameter 'a'"),
        ({"parameters": {"binary_data_output": 1}}, "expected true or false"),
        ({"id": 1}, "id is 1"),
        ({"id": "\udfff"}, "id is '.udfff', which UTF-8 cannot encode"),
    ],
)
def test_request_that_is_malformed(content: Any, text: str) -> None:
    with pytest.raises(HalError, match=text):
        read(content)


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"a": 1e999999}x'])
def test_body_that_is_not_json(body: bytes) -> None:
    with pytest.raises(HalError, match="JSON"):
        read_infer_request("add", "", body, None)


@pytest.mark.parametrize("length", [0, -1, 10**9])
def test_length_that_is_wrong(length: int) -> None:
    with pytest.raises(HalError, match="header length"):
        read_infer_request("add", "", b"{}", length)


def test_bytes_that_no_input_takes() -> None:
    with pytest.raises(HalError, match="8 bytes follow the inputs"):
        read({"inputs": [X | {"data": [1, 2]}]}, BYTES)


def test_responses() -> None:
    request = {"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]}
    read_request = read_infer_request("add", "1", json.dumps(request).encode(), None)
    response = messages.ModelInferResponse(model_name="add", model_version="1", id="seven")
    response.outputs.add(name="y", datatype="FP32", shape=[2])
    response.outputs.add(name="z", datatype="INT8", shape=[2])
    response.outputs.add(name="classes", datatype="BYTES", shape=[1])
    response.raw_output_contents.extend([BYTES, b"\x01\xff", b"\x03\x00\x00\x00cat"])
    body, size = write_infer_response(response, read_request)
    assert size is not None
    assert body[size:] == BYTES
    assert json.loads(body[:size]) == {
        "model_name": "add",
        "model_version": "1",
        "id": "seven",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
            {"name": "z", "datatype": "INT8", "shape": [2], "data": [1, -1]},
            {"name": "classes", "datatype": "BYTES", "shape": [1], "data": ["cat"]},
        ],
    }
