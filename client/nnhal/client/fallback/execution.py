"""Values and results of one execution of a divided model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from numpy.typing import ArrayLike

from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.profile import ExecutionProfile
from nnhal.client.fallback.division import DividedModel, Part
from nnhal.client.fallback.placement import THIS_MACHINE
from nnhal.errors import HalError
from nnhal.types import OMITTED, UNMEASURED, AnyArray, Span, Timing, is_extension

_MAX_OPERATIONS = 5


def describe_part(divided: DividedModel, number: int) -> str:
    """Return the name of a part in messages. Each message of a service numbers the operations of a part from 0."""
    part = divided.parts[number]
    place = THIS_MACHINE if part.is_fallback else "the device"
    operations = ", ".join(map(str, part.operations[:_MAX_OPERATIONS]))
    more = ", ..." if len(part.operations) > _MAX_OPERATIONS else ""
    plural = "s" * (len(part.operations) > 1)
    return f"part {number + 1} of {len(divided.parts)} (operation{plural} {operations}{more}, on {place})"


@contextmanager
def naming_part(divided: DividedModel, number: int) -> Iterator[None]:
    """Let the errors within name a part.

    Raises:
        HalError: with the name of the part.
    """
    try:
        yield
    except HalError as error:
        reason = f"{describe_part(divided, number)}: {error.reason}"
        raise type(error)(error.status, reason, rule=error.rule, kind=error.kind, limit=error.limit) from error


class PartValues:
    """Values that the parts of one execution exchange. Each is freed after the last part that reads it.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not match its operand.
    """

    def __init__(self, divided: DividedModel, io: ModelIO, inputs: Inputs) -> None:
        self._divided = divided
        self._io = io
        main = divided.whole.main
        given = cast(Sequence[ArrayLike | None], io.by_position(inputs))
        converted = [io.convert(i, value) for i, value in enumerate(given)]  # errors come before any part runs
        self._values: dict[int, ArrayLike | None] = {
            o: value if is_extension(operand.type) else array  # arrays of extensions are converted to bytes
            for o, operand, value, array in zip(main.input_indexes, io.inputs, given, converted, strict=True)
        }
        self._timings: list[Timing] = []

    def inputs_of(self, number: int) -> list[ArrayLike | None] | None:
        """Return the inputs of a part; None if one is an empty intermediate result, which no request can contain."""
        parts = self._divided.parts
        values = [self._values[o] for o in parts[number].inputs]
        if any(value is not None and getattr(value, "size", 1) == 0 for value in values):
            return None
        later = {o for part in parts[number + 1 :] for o in part.inputs}
        for o in set(parts[number].inputs) - later - set(self._divided.whole.main.output_indexes):
            del self._values[o]
        return values

    def add(self, number: int, outputs: Outputs) -> None:
        """Add the outputs of a part."""
        self._values.update(zip(self._divided.parts[number].outputs, outputs, strict=True))
        self._timings.append(outputs.timing)

    def outputs(self) -> Outputs:
        """Return the outputs of the execution. Its times are the sums of those of the parts."""
        arrays = (self._values[o] for o in self._divided.whole.main.output_indexes)
        return Outputs.of(cast(Iterator[AnyArray], arrays), self._io.output_names, self._timing())

    def _timing(self) -> Timing:
        if not self._timings:
            return UNMEASURED
        columns = zip(*((each.time_on_device_ns, each.time_in_driver_ns) for each in self._timings), strict=True)
        return Timing(*(OMITTED if OMITTED in column else sum(column) for column in columns))


class PartitionedProfile(ExecutionProfile):
    """Profile of a divided model. The spans of all parts are relative to the start of the call."""

    @property
    def offset_ns(self) -> int:
        """0: each part has been moved to its own estimate."""
        return 0


def combine_profiles(divided: DividedModel, profiles: Sequence[ExecutionProfile], outputs: Outputs) -> ExecutionProfile:
    """Return the profile of a divided model, given those of its parts."""
    started_ns = profiles[0].started_ns
    spans: list[Span] = []
    client_spans: list[Span] = []
    for part, profile in zip(divided.parts, profiles, strict=True):
        offset_ns = profile.started_ns - started_ns
        spans += (_moved(part, span, offset_ns + profile.offset_ns) for span in profile.spans)
        client_spans += (replace(span, start_ns=span.start_ns + offset_ns) for span in profile.client_spans)
    transports = ", ".join(dict.fromkeys(profile.transport for profile in profiles))
    dropped = sum(profile.dropped for profile in profiles)
    return PartitionedProfile(outputs, tuple(spans), dropped, tuple(client_spans), started_ns, transports)


def _moved(part: Part, span: Span, offset_ns: int) -> Span:
    """Return a span of a part as a span of the whole model."""
    is_main = span.subgraph == 0
    return replace(
        span,
        backend=f"{span.backend} ({THIS_MACHINE})".lstrip() if part.is_fallback else span.backend,
        subgraph=part.subgraphs[span.subgraph],
        operations=tuple(part.operations[i] for i in span.operations) if is_main else span.operations,
        start_ns=span.start_ns + offset_ns,
    )
