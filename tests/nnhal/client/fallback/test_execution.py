"""Values, times and errors of executions in parts."""

import numpy as np
import pytest

from nnhal.client.core.arrays import Outputs
from nnhal.client.core.profile import ExecutionProfile
from nnhal.client.fallback.division import divide
from nnhal.client.fallback.execution import PartValues, combine_profiles, naming_part
from nnhal.errors import HalError, SessionLostError
from nnhal.types import OMITTED, UNMEASURED, ErrorKind, ErrorStatus, Span, SpanKind, Timing
from nnhal.types import OperationType as Op
from tests.nnhal.client.fallback.in_process import model_io
from tests.nnhal.client.fallback.models import X, branching, chain

DIVIDED = divide(chain(Op.ABS, Op.NEG, Op.FLOOR), {1})
IO = model_io(DIVIDED.whole)


def outputs(array: object, timing: Timing = UNMEASURED) -> Outputs:
    return Outputs.of([np.asarray(array, np.float32)], (), timing)


@pytest.mark.parametrize("last", [Timing(3, 30), Timing(OMITTED, 30)])
def test_times_are_sums(last: Timing) -> None:
    values = PartValues(DIVIDED, IO, {"x": X})
    for number, timing in enumerate([Timing(1, 10), Timing(2, 20), last]):
        values.add(number, outputs(X, timing))
    device = OMITTED if last.time_on_device_ns == OMITTED else 6
    assert values.outputs().timing == Timing(device, 60)
    assert values.outputs()["y"] is values.outputs()[0]


def test_values_are_freed_after_their_last_reader() -> None:
    values = PartValues(DIVIDED, IO, [X])
    for number in range(2):
        given = values.inputs_of(number)
        assert given is not None
        assert len(given) == 1
        values.add(number, outputs(X))
    assert len(values._values) == 1


def test_inputs_are_checked_before_any_part_runs() -> None:
    with pytest.raises(HalError, match=r"input 0 \(x\) has shape \[3\]; the model takes \[2, 3\]"):
        PartValues(DIVIDED, IO, [np.zeros(3, np.float32)])
    with pytest.raises(HalError, match="2 inputs given; the model takes 1"):
        PartValues(DIVIDED, IO, [X, X])


def test_inputs_are_converted_once() -> None:
    given = PartValues(DIVIDED, IO, [X.tolist()]).inputs_of(0)
    assert given is not None
    assert isinstance(given[0], np.ndarray)
    assert given[0].dtype == np.float32


def test_empty_value_cannot_pass_between_parts() -> None:
    values = PartValues(DIVIDED, IO, [X])
    values.add(0, outputs(np.zeros((0, 3))))
    assert values.inputs_of(1) is None


def test_error_names_the_part() -> None:
    with pytest.raises(SessionLostError) as caught, naming_part(DIVIDED, 1):
        raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, "gone", rule="V-1", kind=ErrorKind.LIMIT, limit="l")
    error = caught.value
    assert str(error) == "DEVICE_UNAVAILABLE: V-1: part 2 of 3 (operation 1, on this machine): gone"
    assert (error.kind, error.limit) == (ErrorKind.LIMIT, "l")
    long = divide(chain(*[Op.ABS] * 6), set())
    text = r"part 1 of 1 \(operations 0, 1, 2, 3, 4, ..., on the device\): x"
    with pytest.raises(HalError, match=text), naming_part(long, 0):
        raise HalError(ErrorStatus.GENERAL_FAILURE, "x")


def test_spans_are_those_of_the_whole_model() -> None:
    divided = divide(branching()[0], {1})

    def profile(started_ns: int, *spans: Span) -> ExecutionProfile:
        client = (Span(SpanKind.STAGE, "send", "", 0, (), 5, 1), Span(SpanKind.STAGE, "wait", "", 0, (), 6, 20))
        return ExecutionProfile(outputs(X), spans, 1, client, started_ns, "gRPC")

    first = profile(1000, Span(SpanKind.PARTITION, "p", "A", 2, (0,), 0, 20))
    second = profile(
        1100, Span(SpanKind.OPERATION, "o", "B", 0, (0,), 0, 20), Span(SpanKind.STAGE, "s", "", 0, (), 0, 1)
    )
    combined = combine_profiles(divided, [first, second], outputs(X))
    assert combined.spans == (
        Span(SpanKind.PARTITION, "p", "A", 2, (0,), first.offset_ns, 20),
        Span(SpanKind.OPERATION, "o", "B (this machine)", 0, (1,), 100 + second.offset_ns, 20),
        Span(SpanKind.STAGE, "s", "(this machine)", 0, (), 100 + second.offset_ns, 1),
    )
    assert [span.start_ns for span in combined.client_spans] == [5, 6, 105, 106]
    assert (combined.started_ns, combined.offset_ns, combined.dropped) == (1000, 0, 2)
