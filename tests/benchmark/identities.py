"""Identities: what they cost, and what one of them notices of another.

`python -m tests.benchmark.identities` measures the cost of the check of a call, the latency of an identity at half of
its quota while another one asks for ten times its own, and the time of a look-up in the cache for a token that another
identity has saved, compared with one that no identity has.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import nnhal
import nnhal.tflite
from nnhal.v1 import device_pb2, session_pb2, types_pb2
from nnhal_service.identity.accounts import Accounts
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.tokens import TokenTable, create_token
from tests.benchmark.figures import Figure, model_path, show
from tests.end_to_end.support.full_client import notified_handle, saving_request
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.identity.callers import open_session

CHECK_US = 3.0
"""Limit of the cost of the check of a call with a token."""
LATENCY = 1.5
"""Limit of the 99th percentile beside an identity at ten times its quota, in multiples of that without it."""
SAME = 0.1
"""Limit of the difference of the look-ups, as a part of their spread."""

_QUOTA = 0.2
_WINDOW_S = 20.0
_LOOKUPS = 400
_MODEL = "mobilenet_v2_1.0_224_quant"
_CLIENT = """
import sys, time, threading, numpy as np, nnhal, nnhal.tflite
target, token, path, seconds, load, threads, cost = *sys.argv[1:4], *map(float, sys.argv[4:])
model = nnhal.tflite.load(path)
times = []
with nnhal.connect(target, token=token, transport="grpc") as device, device.prepare(model).result(60) as prepared:
    x = [np.zeros(prepared.inputs[0].shape, prepared.inputs[0].dtype)]
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    def run(period):
        due = time.monotonic()
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.perf_counter()
            try:
                prepared.execute(x)
                times.append(time.perf_counter() - began)
            except nnhal.HalError as error:
                assert error.limit.startswith("identity_"), error
            due = max(due + period, time.monotonic() - period)
    runs = [threading.Thread(target=run, args=(cost * threads / load,)) for _ in range(int(threads))]
    [each.start() for each in runs]; [each.join() for each in runs]
    times.sort()
    print(times[int(0.99 * len(times))] * 1e3, times[len(times) // 2] * 1e3, len(times), flush=True)
"""


@contextmanager
def running(**rules: float) -> Iterator[tuple[Service, dict[str, str]]]:
    """Run a service with two identities that have the same rules; yield it with their tokens."""
    with tempfile.TemporaryDirectory() as folder:
        created = {name: create_token(name) for name in ("quiet", "loud")}
        tokens = Path(folder, "tokens")
        tokens.write_text("\n".join(line for _, line in created.values()))
        policy = "{" + f'"default": {{{", ".join(f"{chr(34)}{k}{chr(34)}: {v}" for k, v in rules.items())}}}' + "}"
        service = start_service(Path(folder), "--tokens", str(tokens), "--policy", policy)
        try:
            yield service, {name: token for name, (token, _) in created.items()}
        finally:
            stop_service(service)


class _Context:
    """Context of a call, as far as the check uses it."""

    def __init__(self, header: str) -> None:
        self._metadata = (("user-agent", "grpc-python"), ("authorization", header))

    def invocation_metadata(self) -> object:
        """Return the headers."""
        return self._metadata


def check_cost(rounds: int) -> Iterator[Figure]:
    """Yield the cost of the check of one call."""
    with tempfile.TemporaryDirectory() as folder:
        token, line = create_token("a")
        Path(folder, "tokens").write_text(line)
        authentication = Authentication(Accounts(), TokenTable(Path(folder, "tokens")))
        context: Any = _Context(f"Bearer {token}")
        credential, _ = authentication.admit(context)
        values = []
        for _ in range(rounds):
            began = time.thread_time()
            for _ in range(20_000):
                authentication.renew(credential, context)
            values.append((time.thread_time() - began) / 20_000 * 1e6)
        yield Figure("check of a call with a static token", values, "us", CHECK_US)


def client(service: Service, token: str, load: float, threads: int, cost_s: float) -> "subprocess.Popen[str]":
    """Start a client that asks for `load` seconds of the device in each second."""
    numbers = map(str, (_WINDOW_S, load, threads, cost_s))
    arguments = [service.target, token, str(model_path(_MODEL)), *numbers]
    process = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def run_cost_s() -> float:
    """Return the seconds that one execution uses the device."""
    with nnhal.connect() as device, device.prepare(nnhal.tflite.load(model_path(_MODEL))).result(60) as prepared:
        x = [np.zeros(prepared.inputs[0].shape or (), prepared.inputs[0].dtype)]
        times = []
        for _ in range(50):
            began = time.perf_counter()
            prepared.execute(x)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def latency(rounds: int) -> Iterator[Figure]:
    """Yield the 99th percentiles of an identity at half of its quota, alone and beside one at ten times its quota."""
    alone: list[float] = []
    beside: list[float] = []
    cost_s = run_cost_s()
    print(f"one execution takes {cost_s * 1e3:.2f} ms")
    for _ in range(rounds):
        for loads, values in (((_QUOTA / 2, 0.0), alone), ((_QUOTA / 2, 10 * _QUOTA), beside)):
            with running(device_seconds=_QUOTA) as (service, tokens), ExitStack() as stack:
                clients = [
                    stack.enter_context(client(service, tokens[name], load, threads, cost_s))
                    for name, load, threads in (("quiet", loads[0], 2), ("loud", loads[1], 16))
                    if load
                ]
                for each in clients:
                    assert each.stdin is not None
                    each.stdin.write("go\n")
                    each.stdin.flush()
                answers = [each.communicate()[0].split() for each in clients]
                values.append(float(answers[0][0]))
                print("p99, median in ms, executions:", *answers, flush=True)
    ratios = [both / one for one, both in zip(alone, beside, strict=True)]
    yield Figure("p99 of an identity at half of its quota, alone", alone, "ms")
    yield Figure("p99 of the same beside an identity at ten times its quota", beside, "ms")
    yield Figure("ratio of the two", ratios, "x", LATENCY)


def lookups(rounds: int) -> Iterator[Figure]:
    """Yield the difference between look-ups of a token of another identity and of one that no identity has."""
    differences = []
    with running() as (service, tokens), open_session(service.target, f"Bearer {tokens['quiet']}") as quiet:
        token = hashlib.sha256(b"saved").digest()
        cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token)
        notified_handle(quiet.device.PrepareModel(saving_request(quiet.session, cache)))
        with open_session(service.target, f"Bearer {tokens['loud']}") as loud:
            for _ in range(rounds):
                times: dict[bool, list[float]] = {True: [], False: []}
                for number in range(2 * _LOOKUPS):
                    is_saved = number % 2 == 0
                    other = token if is_saved else hashlib.sha256(b"%d" % number).digest()
                    times[is_saved].append(_missed(loud, other))
                spread = statistics.stdev(times[False])
                differences.append(abs(statistics.median(times[True]) - statistics.median(times[False])) / spread)
        quiet.sessions.Close(session_pb2.CloseRequest(session=quiet.session))
    yield Figure("difference of look-ups, as a part of their spread", differences, "", SAME)


def _missed(raw: Any, token: bytes) -> float:
    """Return the seconds that a look-up takes that misses."""
    cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token)
    request = device_pb2.PrepareModelFromCacheRequest(session=raw.session, cache=cache)
    began = time.perf_counter()
    try:
        list(raw.device.PrepareModelFromCache(request))
    except grpc.RpcError:
        return time.perf_counter() - began
    raise AssertionError("the look-up has found the model of another identity")


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    show("cost of the check", lambda: check_cost(options.rounds))
    show("look-ups in the cache", lambda: lookups(options.rounds))
    show("latency beside another identity", lambda: latency(options.rounds))


if __name__ == "__main__":
    main()
