"""Subjects and load levels of a load test."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ENGINE = "engine"
"""Path that runs LiteRT in the client's process, without a service."""


@dataclass(frozen=True)
class Subject:
    """One of the things that a load test compares.

    Attributes:
        path: name of a path of `nnhal_tools.bench.paths`.
        target: address of the service; "" for the engine.
        threads: threads of the engine.
    """

    path: str
    target: str
    label: str
    threads: int = 1


@dataclass(frozen=True)
class Level:
    """Load of one measurement.

    Attributes:
        rate: calls per second of all clients together, which arrive at random; 0: each client makes its next call when
            the last one has ended.
    """

    clients: int
    rate: float = 0.0

    @property
    def text(self) -> str:
        """The level in words."""
        load = f"{self.rate:g}/s from " if self.rate else ""
        return f"{load}{self.clients} client{'s' if self.clients > 1 else ''}"


@dataclass(frozen=True)
class ClientTask:
    """Work of a client process.

    Attributes:
        model: path of the .tflite file, or a name.
        inputs: path of an .npz file with one array for each input, in order.
        device: name of the device; "" for the first.
        shapes: shapes of inputs, by name.
        fallback: whether the client runs operations that the device does not support.
        signature: key of the subgraph of the file; None for the main one.
        is_named: whether the service has the model by its name.
        program: command of the client process; () for that of this package.
    """

    model: str
    inputs: str
    subject: Subject
    device: str
    shapes: dict[str, list[int | None]]
    fallback: bool
    signature: str | None = None
    is_named: bool = False
    program: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "ClientTask":
        """Return the task in JSON that `to_json` has written."""
        fields: dict[str, Any] = json.loads(text)
        typed = {"subject": Subject(**fields["subject"]), "program": tuple(fields["program"])}
        return ClientTask(**{**fields, **typed})


def parse_levels(concurrency: str, rates: str) -> list[Level]:
    """Return the load levels of two options.

    Args:
        concurrency: numbers of clients, such as "1,2,8"; "1:16" stands for 1, 2, 4, 8, 16.
        rates: calls per second, in the same form; "" for a closed loop. They use the largest number of clients.

    Raises:
        ValueError: one is invalid.
    """
    clients = _parse_numbers("--concurrency", concurrency)
    if not rates:
        return [Level(number) for number in clients]
    return [Level(max(clients), float(rate)) for rate in _parse_numbers("--rate", rates)]


def _parse_numbers(option: str, text: str) -> list[int]:
    first, colon, last = text.partition(":")
    parts: Sequence[str] = [first, last] if colon else text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"invalid {option} {text!r}: expected positive integers, such as 1,2,8 or 1:16")
    numbers = [int(part) for part in parts]
    if not colon:
        return sorted(set(numbers))
    if numbers[0] > numbers[1]:
        raise ValueError(f"invalid {option} {text!r}: the first number is larger than the last")
    doubled = [numbers[0] << power for power in range(64) if numbers[0] << power < numbers[1]]
    return [*doubled, numbers[1]]
