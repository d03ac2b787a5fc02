"""Requests and responses of the Open Inference Protocol in JSON, with tensors in binary behind it, as messages."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from nnhal.errors import invalid_argument
from nnhal.inference import open_inference_pb2 as messages
from nnhal_service.open_inference.translation import DATATYPES, decode_texts, typed_bytes
from nnhal_service.rpc.inference import plain_parameters

Json: TypeAlias = Any
T = TypeVar("T")

_BINARY_SIZE, _BINARY, _BINARY_OUTPUT = "binary_data_size", "binary_data", "binary_data_output"
_REGION = "shared_memory_region"
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair of code units, which a text in JSON may have alone."""


class JsonRequest(NamedTuple):
    """Request to run a model.

    Attributes:
        binary: outputs that are sent in binary; `is_binary` is that of the others.
        is_bound: whether it refers to something that one worker keeps for the client.
    """

    message: messages.ModelInferRequest
    binary: Mapping[str, bool]
    is_binary: bool
    is_bound: bool


def read_object(body: bytes) -> dict[str, Json]:
    """Return the JSON object of a body; an empty one without a body.

    Raises:
        HalError: INVALID_ARGUMENT: it is not a JSON object.
    """
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"failed to parse the request JSON buffer: {error}") from None
    if not isinstance(content, dict):
        raise invalid_argument("the request is not a JSON object")
    return content


def read_infer_request(model: str, version: str, body: bytes, header_length: int | None) -> JsonRequest:
    """Return a request. `header_length`: size of the JSON; None if nothing follows it.

    Raises:
        HalError: INVALID_ARGUMENT: it is malformed.
    """
    if header_length is not None and not 0 < header_length <= len(body):
        raise invalid_argument(f"the header length is {header_length}; expected 1 to {len(body)}, the size of the body")
    content = read_object(body[:header_length])
    parameters = _take(content, "parameters", dict, {})
    message = messages.ModelInferRequest(model_name=model, model_version=version, id=_take(content, "id", str, ""))
    is_binary = _flag(parameters, _BINARY_OUTPUT)
    is_bound = "sequence_id" in parameters
    set_parameters(message.parameters, parameters, _BINARY_OUTPUT)
    binary = memoryview(body)[header_length:] if header_length is not None else memoryview(b"")
    for tensor in _objects(content, "inputs"):
        entry = message.inputs.add(name=_take(tensor, "name", str), datatype=_take(tensor, "datatype", str))
        entry.shape.extend(_shape(tensor))
        options = _take(tensor, "parameters", dict, {})
        set_parameters(entry.parameters, options, _BINARY_SIZE)
        if _REGION in options:
            is_bound = True
        elif _BINARY_SIZE in options:
            size = _take(options, _BINARY_SIZE, int)
            if not 0 <= size <= len(binary):
                raise invalid_argument(f"input '{entry.name}' has {size} bytes in binary; {len(binary)} are left")
            message.raw_input_contents.append(bytes(binary[:size]))
            binary = binary[size:]
        else:
            data = typed_bytes(entry.name, entry.datatype, _take(tensor, "data", list))
            message.raw_input_contents.append(data.tobytes())
    if len(binary):
        raise invalid_argument(f"{len(binary)} bytes follow the inputs in binary")
    chosen = {}
    for output in _objects(content, "outputs"):
        name, options = _take(output, "name", str), _take(output, "parameters", dict, {})
        set_parameters(message.outputs.add(name=name).parameters, options, _BINARY)
        chosen[name] = _flag(options, _BINARY) if _BINARY in options else is_binary
        is_bound = is_bound or _REGION in options
    return JsonRequest(message, chosen, is_binary, is_bound)


def _shape(tensor: Mapping[str, Json]) -> list[int]:
    shape: list[Json] = _take(tensor, "shape", list)
    if not all(type(each) is int and -(2**63) <= each < 2**63 for each in shape):
        raise invalid_argument(f"shape is {shape!r}; expected a list of numbers")
    return shape


def _objects(content: Mapping[str, Json], name: str) -> list[dict[str, Json]]:
    found: list[Json] = _take(content, name, list, [])
    if not all(isinstance(each, dict) for each in found):
        raise invalid_argument(f"{name} has an element that is not an object")
    return found


def _take(content: Mapping[str, Json], name: str, kind: type[T], default: T | None = None) -> T:
    value = content.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        given = "is missing" if value is None else f"is {value!r:.100}"
        raise invalid_argument(f"{name} {given}; expected {_KINDS[kind]}")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise invalid_argument(f"{name} is {value!r:.100}, which UTF-8 cannot encode")
    return value


_KINDS = {str: "a text", int: "a number", list: "a list", dict: "an object"}


def _flag(parameters: Mapping[str, Json], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise invalid_argument(f"parameter {name!r} is {value!r:.100}; expected true or false")
    return value


def set_parameters(target: Any, parameters: Mapping[str, Json], omitted: str = "") -> None:
    """Set parameters of a message, which are truth values, numbers and texts.

    Raises:
        HalError: INVALID_ARGUMENT: one is something else.
    """
    for name, value in parameters.items():
        if name == omitted:
            continue
        try:
            kind = _FIELDS[type(value)]
            setattr(target[name], kind if kind != "int64_param" or value < 2**63 else "uint64_param", value)
        except (KeyError, ValueError, AttributeError):  # AttributeError: some parameters have no fractions
            raise invalid_argument(f"parameter {name!r} is {value!r:.100}; expected a number or a text") from None


_FIELDS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}


def write_infer_response(message: messages.ModelInferResponse, request: JsonRequest) -> tuple[bytes, int | None]:
    """Return the body of a response, and the size of its JSON if tensors follow it."""
    outputs, tail = [], []
    for tensor, content in zip(message.outputs, message.raw_output_contents, strict=True):
        parameters = plain_parameters(tensor.parameters)
        output: dict[str, Json] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if _REGION in parameters:
            pass
        elif request.binary.get(tensor.name, request.is_binary):
            tail.append(content)
            parameters[_BINARY_SIZE] = len(content)
        elif tensor.datatype == "BYTES":
            output["data"] = [text.decode("utf-8", "replace") for text in decode_texts(content)]
        else:
            output["data"] = np.frombuffer(content, DATATYPES[tensor.datatype]).tolist()
        outputs.append(output | ({"parameters": parameters} if parameters else {}))
    described = {"model_name": message.model_name, "model_version": message.model_version, "outputs": outputs}
    if message.id:
        described["id"] = message.id
    head = json.dumps(described).encode()
    return b"".join((head, *tail)), len(head) if tail else None
