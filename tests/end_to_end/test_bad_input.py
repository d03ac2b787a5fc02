"""Random and mutated requests for every method: each ends soon, well or with a reason, and the service takes no harm.

NNHAL_FUZZ_EXAMPLES says how many of each kind are tried: 500, always the same ones, unless it is set.
"""

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import device_pb2, memory_pb2, prepared_model_pb2, types_pb2
from nnhal.wire import model_message
from tests.end_to_end.contract import METHODS
from tests.end_to_end.mutation import bytes_mutated, mutated
from tests.end_to_end.oracle import WATCHDOG_S, Verdict, judged
from tests.end_to_end.random_models import sample
from tests.end_to_end.raw import prepare_request
from tests.end_to_end.seeds import Stage
from tests.end_to_end.victim import victim
from tools.conformance.vectors import Case

EXAMPLES = os.environ.get("NNHAL_FUZZ_EXAMPLES")
VECTORS = Path(__file__).parents[3] / "shared" / "vectors"

fuzzed = settings(
    max_examples=int(EXAMPLES or 500),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
randoms = st.integers(0, 2**64 - 1).map(Random)


class Attacker:
    """Makes bad calls, and puts the stage up again when one has torn it down."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.stage = Stage(target)

    def close(self) -> None:
        self.stage.close()

    def call(self, name: str, requests: Sequence[bytes]) -> Verdict:
        """Calls a method with bytes, and holds how that ends."""
        verdict = judged(partial(METHODS[name].call, self.stage.channel, requests, WATCHDOG_S))
        self._clear(verdict.responses)
        if name in ("Session.Close", "Session.Release") and not self.stage.whole:
            self.stage.close()
            self.stage = Stage(self._target)
        return verdict

    def _clear(self, responses: Sequence[Message]) -> None:
        """Releases what a call has made after all."""
        handles = []
        for response in responses:
            if isinstance(response, device_pb2.PrepareModelEvent):
                handles.append(response.notify.prepared_model)
            elif isinstance(response, memory_pb2.CreateMemoryResponse):
                handles.append(response.memory)
        if handles:
            self.stage.release(handles)

    def run(self, model: types_pb2.Model, request: types_pb2.Request) -> Verdict:
        """Prepares a model and executes it."""
        prepare = prepare_request(self.stage.raw, model, 10**10).SerializeToString()
        prepared = judged(partial(METHODS["Device.PrepareModel"].call, self.stage.channel, [prepare], WATCHDOG_S))
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
        self._clear(prepared.responses)
        return executed


@pytest.fixture(scope="module")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    # small tensors: not to see whether large ones do harm, which is another test, but to be quick
    with victim(tmp_path_factory.mktemp("victim"), "--limit=tensor_bytes=67108864") as service:
        attacker = Attacker(service.target)
        yield attacker
        attacker.close()


@fuzzed
@given(randoms)
def test_bytes(attacker: Attacker, random: Random) -> None:
    """Bytes that are cut off, changed or made up, for every method there is."""
    name, messages = random.choice(attacker.stage.calls())
    requests = [message.SerializeToString() for message in messages]
    spoilt = random.randrange(len(requests))
    made_up = random.random() < 0.2
    requests[spoilt] = random.randbytes(random.randrange(200)) if made_up else bytes_mutated(random, requests[spoilt])
    verdict = attacker.call(name, requests)
    if not _decodes(METHODS[name].request, requests[spoilt]) and verdict.responses == []:
        assert verdict.status != ErrorStatus.NONE, verdict


def _decodes(kind: type[Message], raw: bytes) -> bool:
    try:
        kind.FromString(raw)
    except DecodeError:
        return False
    return True


@fuzzed
@given(randoms)
def test_messages(attacker: Attacker, random: Random) -> None:
    """Good requests with some of their fields changed."""
    name, messages = random.choice(attacker.stage.calls())
    requests = list(messages)
    spoilt = random.randrange(len(requests))
    requests[spoilt] = mutated(random, requests[spoilt])
    attacker.call(name, [request.SerializeToString() for request in requests])


@fuzzed
@given(randoms)
def test_random_operations(attacker: Attacker, random: Random) -> None:
    """Every operation, with arguments that its signature allows."""
    made = sample(random)
    attacker.run(model_message(made.model), _request(made.inputs, len(made.model.main.output_indexes)))


@pytest.mark.skipif(not VECTORS.exists(), reason="the test vectors are not next to the project")
@fuzzed
@given(randoms)
def test_mutated_vectors(attacker: Attacker, random: Random) -> None:
    """Models that run, with some fields of the model, of its constants, its inputs or its request changed."""
    case = random.choice(_cases())
    model = case.model(unspecified_outputs=random.random() < 0.5)
    request = _request(case.inputs, len(case.outputs))
    change = random.randrange(4)
    if change == 0:
        request = mutated(random, request)
    elif change == 1:
        model.operand_values = _spoilt(random, model.operand_values)
    elif change == 2:
        request.pools[0].pool.inline = _spoilt(random, request.pools[0].pool.inline)
    else:
        model = mutated(random, model)
    attacker.run(model, request)


def _spoilt(random: Random, raw: bytes) -> bytes:
    """As many bytes, a tenth of them others."""
    return bytes(random.choice((0, 1, 127, 128, 255)) if random.random() < 0.1 else byte for byte in raw)


def _request(inputs: Sequence[AnyArray | None], outputs: int) -> types_pb2.Request:
    """Inputs in one pool, outputs as large as needed."""
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
    """One small case of each file of vectors."""
    cases = []
    for path in sorted(VECTORS.glob("*/*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            first = next(map(json.loads, lines))
        case = Case(first)
        if case.model().ByteSize() < 50_000 and all(one is None or one.nbytes < 50_000 for one in case.inputs):
            cases.append(case)
    return cases
