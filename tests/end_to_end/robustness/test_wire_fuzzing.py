"""Mutated messages over several connections at once: the service neither dies, nor hangs, nor reports a defect.

NNHAL_FUZZ_EXAMPLES sets the number of messages; without it, none are sent. Two kinds are sent:
requests of every RPC method with changed fields or bytes, and packets of the data socket.
"""

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, Packet, PacketKind
from nnhal.v1 import error_pb2
from tests.end_to_end.support.allowed_outcomes import DEFECTS, WATCHDOG_S, check_call
from tests.end_to_end.support.message_mutation import mutate_bytes, mutate_message
from tests.end_to_end.support.rpc_methods import METHODS
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.end_to_end.support.valid_requests import Stage, inline_request

MESSAGES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "2000"))
CONNECTIONS = 4
_KINDS = 8
"""One message in so many is a packet of the data socket."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = {"NNHAL_SESSION_GRACE_S": "0", "NNHAL_TRANSFER_IDLE_S": "2"}
    # a small limit keeps the examples fast; test_bombs.py tests large tensors
    running = start_service(tmp_path, "--limit=tensor_bytes=67108864", **settings)
    try:
        yield running
        assert running.process.poll() is None
        assert not running.logged("Traceback"), running.log.read_text()[-5000:]
        assert not running.logged("internal error"), running.log.read_text()[-5000:]
    finally:
        assert stop_service(running) == 0


class Fuzzer:
    """One client that sends mutated messages.

    Attributes:
        sent: number of messages.
        failure: why it ended early, or None.
    """

    def __init__(self, target: str, seed: int, count: int) -> None:
        self.sent = 0
        self.failure: BaseException | None = None
        self._target = target
        self._seed = seed
        self._count = count
        self._stage = Stage(target)

    def run(self) -> None:
        """Send all messages. An unexpected answer ends it."""
        try:
            for number in range(self._count):
                random = Random(self._seed * 10**9 + number)
                if number % _KINDS == 0:
                    self._send_packets(random)
                else:
                    self._send_request(random)
                self.sent += 1
        except BaseException as error:
            error.add_note(f"message {number} of seed {self._seed}")
            self.failure = error
        finally:
            self._stage.close()

    def _send_request(self, random: Random) -> None:
        name, messages = random.choice(self._stage.calls())
        position = random.randrange(len(messages))
        raw = [message.SerializeToString() for message in messages]
        if random.random() < 0.1:
            raw[position] = random.randbytes(random.randrange(300))
        elif random.random() < 0.5:
            raw[position] = mutate_bytes(random, raw[position])
        else:
            raw[position] = mutate_message(random, messages[position]).SerializeToString()
        check_call(partial(METHODS[name].call, self._stage.channel, raw, WATCHDOG_S))
        if name.startswith("Session.") or self.sent % 500 == 499:
            self._renew_stage()

    def _renew_stage(self) -> None:
        """Replace objects that a message may have released. The end of a session releases what was created in it."""
        if self._stage.whole and self.sent % 500 != 499:
            return
        self._stage.close()
        self._stage = Stage(self._target)

    def _send_packets(self, random: Random) -> None:
        """Send a sequence of packets over a new connection to the data socket, until the service closes it."""
        opened = self._stage.raw.opened
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(WATCHDOG_S)
            connection.connect("\0" + opened.data_socket[1:])
            for packet, descriptors in self._packets(random):
                try:
                    if descriptors:
                        with _memory(random) as memory:
                            socket.send_fds(connection, [packet], [memory] * descriptors)
                    else:
                        connection.send(packet)
                    answer = connection.recv(protocol.MAX_BYTES)
                except (BrokenPipeError, ConnectionResetError):
                    return
                if not answer:
                    return
                response = Packet.unpack(answer)
                if response.kind == PacketKind.ERROR:
                    reason = error_pb2.ErrorDetail.FromString(response.body).reason
                    assert not reason.startswith(DEFECTS), reason

    def _packets(self, random: Random) -> Iterator[tuple[bytes, int]]:
        """Yield packets with their numbers of descriptors: a plausible sequence with some changes."""
        opened, stage = self._stage.raw.opened, self._stage
        request = inline_request()
        if random.random() < 0.5:
            request = mutate_message(random, request)
        handle = random.choice((stage.model, stage.model, stage.memory, random.randbytes(16)))
        area = random.choice((0, 0, 64, -5, 2**62)), random.choice((0, 64, 4096, -1, 2**62))
        definition = Definition(handle, 7, *area, request.SerializeToString())
        hello = Packet(PacketKind.HELLO, body=protocol.pack_hello(opened.session, opened.data_secret))
        times = (-1, -1, 0, 1, 10**9, -5, 2**63 - 1, -(2**63))
        rest = [
            (Packet(PacketKind.SHARE, 7, random.choice((0, 0, 1, 255))), random.choice((0, 1, 1, 1, 2, 5))),
            (Packet(PacketKind.DEFINE, 9, first=random.choice(times), body=definition.pack()), 0),
            (Packet(PacketKind.RUN, 9, random.choice((0, 1, 255)), random.choice(times)), 0),
            (Packet(PacketKind.FORGET, 9), 0),
            (Packet(PacketKind.DROP, 7), 0),
        ]
        if random.random() < 0.5:
            random.shuffle(rest)
        for packet, descriptors in [(hello, 0), *rest]:
            raw = packet.pack()
            if random.random() < 0.15:
                raw = mutate_bytes(random, raw) or b"\0"
            yield (random.randbytes(random.randrange(1, 2000)) if random.random() < 0.03 else raw), descriptors


@contextmanager
def _memory(random: Random) -> Iterator[int]:
    """Yield a descriptor: of memory that can be shared, or that lacks seals, or of a size that no page has."""
    descriptor = os.memfd_create("fuzz", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, random.choice((4096, 4096, 4096, 0, 1, 5000)))
        if random.random() < 0.8:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.slow
@pytest.mark.skipif("NNHAL_FUZZ_EXAMPLES" not in os.environ, reason="only with NNHAL_FUZZ_EXAMPLES")
def test_mutated_messages(service: Service) -> None:
    fuzzers = [Fuzzer(service.target, seed, MESSAGES // CONNECTIONS) for seed in range(CONNECTIONS)]
    threads = [threading.Thread(target=fuzzer.run) for fuzzer in fuzzers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [fuzzer.failure for fuzzer in fuzzers if fuzzer.failure is not None]
    if failures:
        raise failures[0]
    assert sum(fuzzer.sent for fuzzer in fuzzers) == MESSAGES // CONNECTIONS * CONNECTIONS
    Stage(service.target).close()
