"""Random and mutated requests for every method: each call ends in time, and the service stays usable.

NNHAL_FUZZ_EXAMPLES sets the number of examples of each kind. The default is 500, the same ones in each run.
"""

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache, partial
from random import Random

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import device_pb2, memory_pb2, prepared_model_pb2, types_pb2
from nnhal.wire import model_message
from nnhal_tools.conformance.vectors.case import Case
from tests.end_to_end.support.allowed_outcomes import WATCHDOG_S, CallResult, check_call
from tests.end_to_end.support.attacked_service import attacked_service
from tests.end_to_end.support.message_mutation import mutate_bytes, mutate_message
from tests.end_to_end.support.random_models import random_sample
from tests.end_to_end.support.raw_client import prepare_request
from tests.end_to_end.support.rpc_methods import METHODS
from tests.end_to_end.support.valid_requests import Stage
from tests.shared import shared

EXAMPLES = os.environ.get("NNHAL_FUZZ_EXAMPLES")

fuzzed = settings(
    max_examples=int(EXAMPLES or 500),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
randoms = st.integers(0, 2**64 - 1).map(Random)


class Attacker:
    """Client that sends bad calls. It creates a new stage when a call has destroyed the old one."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.stage = Stage(target)

    def close(self) -> None:
        self.stage.close()

    def call(self, name: str, requests: Sequence[bytes]) -> CallResult:
        """Call a method with request bytes and check how the call ends."""
        result = check_call(partial(METHODS[name].call, self.stage.channel, requests, WATCHDOG_S))
        self._release_created(result.responses)
        if name in ("Session.Close", "Session.Release") and not self.stage.whole:
            self.stage.close()
            self.stage = Stage(self._target)
        return result

    def _release_created(self, responses: Sequence[Message]) -> None:
        """Release the objects that a call has created."""
        handles = []
        for response in responses:
            if isinstance(response, device_pb2.PrepareModelEvent):
                handles.append(response.notify.prepared_model)
            elif isinstance(response, memory_pb2.CreateMemoryResponse):
                handles.append(response.memory)
        if handles:
            self.stage.release(handles)

    def run(self, model: types_pb2.Model, request: types_pb2.Request) -> CallResult:
        """Prepare a model and execute it."""
        prepare = prepare_request(self.stage.raw, model, 10**10).SerializeToString()
        prepared = check_call(partial(METHODS["Device.PrepareModel"].call, self.stage.channel, [prepare], WATCHDOG_S))
        if prepared.status != ErrorStatus.NONE:
            return prepared
        execute = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=self.stage.session,
            prepared_model=prepared.prepared_model,
            request=request,
            deadline_ns=2 * 10**9,
            loop_timeout_duration_ns=10**8,
        )
        executed = self.call("PreparedModel.ExecuteSynchronously", [execute.SerializeToString()])
        self._release_created(prepared.responses)
        return executed


@pytest.fixture(scope="module")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    # a small limit keeps the examples fast; test_bombs.py tests large tensors
    with attacked_service(tmp_path_factory.mktemp("attacked"), "--limit=tensor_bytes=67108864") as service:
        attacker = Attacker(service.target)
        yield attacker
        attacker.close()


@pytest.mark.slow
@fuzzed
@given(randoms)
def test_bytes(attacker: Attacker, random: Random) -> None:
    """Send truncated, modified and random bytes to every method."""
    name, messages = random.choice(attacker.stage.calls())
    requests = [message.SerializeToString() for message in messages]
    target = random.randrange(len(requests))
    if random.random() < 0.2:
        requests[target] = random.randbytes(random.randrange(200))
    else:
        requests[target] = mutate_bytes(random, requests[target])
    result = attacker.call(name, requests)
    if not _parses(METHODS[name].request, requests[target]) and result.responses == []:
        assert result.status != ErrorStatus.NONE, result


def _parses(message_type: type[Message], raw: bytes) -> bool:
    try:
        message_type.FromString(raw)
    except DecodeError:
        return False
    return True


@fuzzed
@given(randoms)
def test_messages(attacker: Attacker, random: Random) -> None:
    """Send valid requests with some changed fields."""
    name, messages = random.choice(attacker.stage.calls())
    requests = list(messages)
    target = random.randrange(len(requests))
    requests[target] = mutate_message(random, requests[target])
    attacker.call(name, [request.SerializeToString() for request in requests])


@pytest.mark.slow
@fuzzed
@given(randoms)
def test_random_operations(attacker: Attacker, random: Random) -> None:
    """Run every operation with random arguments that its signature allows."""
    sample = random_sample(random)
    attacker.run(model_message(sample.model), _request(sample.inputs, len(sample.model.main.output_indexes)))


@pytest.mark.slow
@fuzzed
@given(randoms)
def test_mutated_vectors(attacker: Attacker, random: Random) -> None:
    """Run test vectors with changes to the model, its constants, its inputs or the request."""
    case = random.choice(_cases())
    model = case.model(unspecified_outputs=random.random() < 0.5)
    request = _request(case.inputs, len(case.outputs))
    change = random.randrange(4)
    if change == 0:
        request = mutate_message(random, request)
    elif change == 1:
        model.operand_values = _corrupt(random, model.operand_values)
    elif change == 2:
        request.pools[0].pool.inline = _corrupt(random, request.pools[0].pool.inline)
    else:
        model = mutate_message(random, model)
    attacker.run(model, request)


def _corrupt(random: Random, raw: bytes) -> bytes:
    """Replace about a tenth of the bytes."""
    return bytes(random.choice((0, 1, 127, 128, 255)) if random.random() < 0.1 else byte for byte in raw)


def _request(inputs: Sequence[AnyArray | None], outputs: int) -> types_pb2.Request:
    """Return a request with all inputs in one pool and outputs of any size."""
    request = types_pb2.Request()
    data = bytearray()
    for array in inputs:
        if array is None:
            request.inputs.add(has_no_value=True)
            continue
        request.inputs.add(location=types_pb2.DataLocation(offset=len(data), length=array.nbytes))
        data += array.tobytes()
    request.pools.add().pool.inline = bytes(data) or bytes(1)
    request.pools.add().returned.SetInParent()
    for _ in range(outputs):
        request.outputs.add().location.pool_index = 1
    return request


@cache
def _cases() -> list[Case]:
    """Return one small case of each vector file."""
    cases = []
    for path in sorted(shared("vectors").glob("*/*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            first = next(map(json.loads, lines))
        case = Case(first)
        if case.model().ByteSize() < 50_000 and all(array is None or array.nbytes < 50_000 for array in case.inputs):
            cases.append(case)
    return cases
