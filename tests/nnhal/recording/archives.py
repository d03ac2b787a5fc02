"""Archives for tests, written without the recorder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnhal import ModelBuilder, wire
from nnhal.recording.members import HEADER, VERSION, model_name, pack_content, pack_member, record_name
from nnhal.types import AnyArray, Model, Operand, OperandType, OperationType

DIGEST = "ab" * 32


def doubling_model() -> Model:
    """Return a model that adds its input, a vector of two elements, to itself."""
    b = ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [2], name="x")
    b.output(b.add(OperationType.ADD, x, x, 0, output=Operand(OperandType.TENSOR_FLOAT32, (2,))), name="y")
    return b.build()


def header(identity: str = "anonymous", version: int = VERSION) -> bytes:
    document = {"version": version, "identity": identity, "nnhal": "1", "backends": {}, "started": 1.0}
    return pack_member(HEADER, pack_content(document, {}))


def packed_model(model: Model, digest: str = DIGEST) -> bytes:
    encoded = wire.model_message(model).SerializeToString()
    content = pack_content({"digest": digest}, {"model": np.frombuffer(encoded, np.uint8)})
    return pack_member(model_name(digest), content)


def describe(array: AnyArray) -> Mapping[str, Any]:
    return {"shape": array.shape, "dtype": array.dtype.name}


def packed_record(
    number: int, inputs: Sequence[AnyArray], outputs: Sequence[AnyArray], digest: str = DIGEST, **fields: object
) -> bytes:
    document = {
        "device": "nnhal",
        "path": "unary",
        "started": 1000.0 + number,
        "duration_ns": 2_000_000,
        "queued_ns": 0,
        "device_ns": 1_000_000,
        "status": "ok",
        "model": digest,
        "backends": {"CpuRef": 1},
        "inputs": list(map(describe, inputs)),
        "outputs": list(map(describe, outputs)),
        "has_values": True,
        "share": 1.0,
    }
    values = {f"input{i}": array for i, array in enumerate(inputs)}
    values |= {f"output{i}": array for i, array in enumerate(outputs)}
    return pack_member(record_name(number), pack_content(document | fields, values))


def write_archive(path: Path, model: Model, pairs: Sequence[tuple[Sequence[AnyArray], Sequence[AnyArray]]]) -> Path:
    """Write an archive with a record for each pair of inputs and outputs."""
    members = [packed_record(number, *pair) for number, pair in enumerate(pairs, 1)]
    path.write_bytes(header() + packed_model(model) + b"".join(members))
    return path
