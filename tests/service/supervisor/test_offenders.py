"""Offenders: their probation, and who waits how long."""

from nnhal_service.identity.identity import ANONYMOUS, Identity, client_digest, is_host
from nnhal_service.supervisor.offenders import CAPACITY, PROBATION_S, TABLE_BYTES, OffenderTable

ALICE = client_digest(Identity("token", "alice"), "ipv4:10.0.0.1:1")
HOST = client_digest(ANONYMOUS, "ipv4:10.0.0.1:1")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def table() -> tuple[OffenderTable, OffenderTable, Clock]:
    """Return a table as its writer and a reader see it, and their clock."""
    memory, clock = memoryview(bytearray(TABLE_BYTES)), Clock()
    return OffenderTable(memory, clock), OffenderTable(memory, clock), clock


def test_digests_of_clients() -> None:
    assert is_host(HOST) and not is_host(ALICE)
    assert client_digest(ANONYMOUS, "ipv4:10.0.0.1:2") == HOST != client_digest(ANONYMOUS, "ipv4:10.0.0.2:1")
    assert client_digest(Identity("token", "alice"), "unix:") == ALICE


def test_an_identity_waits_longer_each_time() -> None:
    writer, reader, clock = table()
    assert reader.wait_s(ALICE) is None
    waits = []
    for offences in range(1, 10):
        assert writer.add(ALICE) == offences
        waits.append(reader.wait_s(ALICE))
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    clock.now += 30
    assert reader.wait_s(ALICE) == 30
    clock.now += 60
    assert reader.wait_s(ALICE) == 0


def test_clients_of_a_host_do_not_wait() -> None:
    writer, reader, _ = table()
    for _ in range(5):
        writer.add(HOST)
    assert reader.wait_s(HOST) == 0 and reader.wait_s(ALICE) is None


def test_probation_ends() -> None:
    writer, reader, clock = table()
    writer.add(ALICE), writer.add(ALICE)
    clock.now += PROBATION_S
    assert reader.wait_s(ALICE) is None
    assert writer.add(ALICE) == 1


def test_the_oldest_offender_makes_room() -> None:
    writer, reader, clock = table()
    clients = [client_digest(Identity("token", str(number)), "") for number in range(CAPACITY + 1)]
    for client in clients:
        clock.now += 1
        writer.add(client)
    assert [reader.wait_s(client) for client in clients] == [None, *[0] * CAPACITY]
    assert writer.add(clients[5]) == 2
