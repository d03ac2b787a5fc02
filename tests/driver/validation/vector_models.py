"""Canonical models of the test vectors, built from their JSON without the code of the product."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.types import (
    DataLocation,
    ExtraParams,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationType,
    Subgraph,
    SymmPerChannelQuantParams,
)

VECTORS = Path(__file__).parents[4] / "shared" / "vectors"

Json = dict[str, Any]


def cases(path: Path) -> Iterator[Json]:
    """Yield the cases of one file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


class _Packer:
    """Constants of a model, each at a multiple of 4 bytes."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def add(self, data: bytes) -> DataLocation:
        self.bytes.extend(bytes(-len(self.bytes) % 4))
        offset = len(self.bytes)
        self.bytes.extend(data)
        return DataLocation(0, offset, len(data))


def model_of(case: Json) -> Model:
    """Return the model of a case."""
    copied, pooled = _Packer(), _Packer()
    main, *referenced = (
        _subgraph(subgraph, copied, pooled) for subgraph in (case["model"]["main"], *case["model"]["referenced"])
    )
    pools = (Memory(np.frombuffer(bytes(pooled.bytes), np.uint8)),) if pooled.bytes else ()
    return Model(main, tuple(referenced), bytes(copied.bytes), pools, case["relaxed"])


def _subgraph(subgraph: Json, copied: _Packer, pooled: _Packer) -> Subgraph:
    return Subgraph(
        tuple(_operand(operand, copied, pooled) for operand in subgraph["operands"]),
        tuple(
            Operation(OperationType[operation["type"]], tuple(operation["inputs"]), tuple(operation["outputs"]))
            for operation in subgraph["operations"]
        ),
        tuple(subgraph["inputs"]),
        tuple(subgraph["outputs"]),
    )


def _operand(operand: Json, copied: _Packer, pooled: _Packer) -> Operand:
    lifetime = operand["lifetime"]
    location = DataLocation()
    if lifetime == "CONSTANT_COPY":
        location = copied.add(b64decode(operand["data"]))
    elif lifetime == "CONSTANT_REFERENCE":
        location, lifetime = pooled.add(b64decode(operand["data"])), "CONSTANT_POOL"
    elif lifetime == "SUBGRAPH":
        location = DataLocation(offset=operand["subgraph"])
    params: ExtraParams = None
    if "channel_quant" in operand:
        quant = operand["channel_quant"]
        params = SymmPerChannelQuantParams(tuple(quant["scales"]), quant["channel_dim"])
    return Operand(
        OperandType[operand["type"]],
        tuple(operand["dimensions"]),
        operand["scale"],
        operand["zero_point"],
        OperandLifeTime[lifetime],
        location,
        params,
    )
