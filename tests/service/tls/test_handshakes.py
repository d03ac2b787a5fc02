"""Handshakes of both clients with a service: which are refused, with which reasons; and files that are replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import nnhal
import nnhal.aio
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.relay import relay
from tests.redirecting_server import redirecting
from tests.service.tls.authority import Authority, Pair
from tests.service.tls.tls_service import CA, CLIENT, SERVER, serving

OTHER_CA = Authority()
X = tensor(T.TENSOR_FLOAT32, (2,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(2, np.float32)

Connect = Callable[..., Awaitable[str]]


async def connect_sync(target: str, **options: Any) -> str:
    def run() -> str:
        with nnhal.connect(target, **options) as device:
            return device._connection.session.decode("latin-1")

    return await asyncio.to_thread(run)


async def connect_async(target: str, **options: Any) -> str:
    async with nnhal.aio.connect(target, **options) as device:
        return device._connection.session.decode("latin-1")


@pytest.fixture(params=[connect_sync, connect_async])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Return a function that connects with each client, and returns the session."""
    function: Connect = request.param
    return function


@pytest.fixture(autouse=True)
def _no_second_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `connect` give up at once when a service ends the connection, rather than after a second."""
    for package in ("sync", "aio"):
        monkeypatch.setattr(f"nnhal.client.{package}.reconnect.REPLACEMENT_TIMEOUT_S", 0.0)


def own(pair: Pair) -> dict[str, Any]:
    return {"cert": pair.cert, "key": pair.key}


# ---- Handshakes -----------------------------------------------------------------------------------------


async def test_accepted_handshakes(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(CA.pem)
    (tmp_path / "client").write_bytes(CLIENT.key + CLIENT.cert)
    with redirecting(credentials=CA.server_credentials(SERVER, CA.pem)) as server:
        name = f"localhost:{server.target.rpartition(':')[2]}"
        for target in (server.target, name, f"grpcs://{name}"):
            assert await connect(target, ca=CA.pem, **own(CLIENT)) == server.target
        assert await connect(name, ca=tmp_path / "ca", cert=str(tmp_path / "client")) == server.target
        credentials = grpc.ssl_channel_credentials(CA.pem, CLIENT.key, CLIENT.cert)
        assert await connect(name, credentials=credentials) == server.target


REFUSED: list[tuple[str, Pair, dict[str, Any], str]] = [
    ("expired", CA.issue(period="past"), {"ca": CA.pem}, "the certificate of the service has expired"),
    ("early", CA.issue(period="future"), {"ca": CA.pem}, "the certificate of the service is not valid yet"),
    (
        "wrong name",
        CA.issue("nnhal.example"),
        {"ca": CA.pem},
        r"the certificate of the service is for nnhal.example, not for 127.0.0.1 \(server_name\)",
    ),
    ("wrong CA", SERVER, {"ca": OTHER_CA.pem}, "is not signed by an authority that the client trusts"),
    ("public CAs", SERVER, {"tls": True}, "is not signed by an authority that the client trusts"),
    (
        "wrong CA of credentials",
        SERVER,
        {"credentials": grpc.ssl_channel_credentials(OTHER_CA.pem)},
        "is not signed by an authority that the client trusts",
    ),
    ("no TLS", SERVER, {}, r"the service uses TLS; connect with tls=True \(--tls\), or with the ca"),
]


@pytest.mark.parametrize(("pair", "options", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_refused_services(connect: Connect, pair: Pair, options: dict[str, Any], reason: str) -> None:
    with redirecting(credentials=CA.server_credentials(pair)) as server:
        with pytest.raises(HalError, match=reason) as failed:
            await connect(server.target, **options)
        assert not isinstance(failed.value, DeadObjectError)  # it is not tried again
        assert not server.requests


async def test_tls_to_a_service_without_it(connect: Connect) -> None:
    with redirecting() as server:
        with pytest.raises(HalError, match="the service does not use TLS; connect without it"):
            await connect(server.target, ca=CA.pem)
        assert not server.requests


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, r"it probably requires a certificate of the client \(cert, key\)"),
        (own(CA.issue("a@b.c", period="past")), "the certificate of the client has expired on 2021-01-01"),
        (own(OTHER_CA.issue("a@b.c")), "it probably does not accept the certificate of the client"),
    ],
    ids=["none", "expired", "wrong CA"],
)
async def test_refused_clients(connect: Connect, options: dict[str, Any], reason: str) -> None:
    with redirecting(credentials=CA.server_credentials(SERVER, CA.pem)) as server:
        with pytest.raises(DeadObjectError, match=reason):
            await connect(server.target, ca=CA.pem, **options)
        assert not server.requests


async def test_redirect_keeps_credentials_and_name(connect: Connect) -> None:
    credentials = CA.server_credentials(CA.issue("localhost"), CA.pem)
    with redirecting(credentials=credentials) as second, redirecting(second.target, credentials=credentials) as first:
        target = f"localhost:{first.target.rpartition(':')[2]}"
        # the certificate is not for the address of the redirect, 127.0.0.1
        assert await connect(target, ca=CA.pem, token="secret", **own(CLIENT)) == second.target
        assert first.headers == second.headers == ["Bearer secret"]
    with redirecting() as plain, redirecting(plain.target, credentials=credentials) as first:
        assert await connect(f"localhost:{first.target.rpartition(':')[2]}", ca=CA.pem, **own(CLIENT)) == first.target
        assert not plain.requests


async def test_redirect_to_a_unix_socket_is_not_followed(connect: Connect, tmp_path: Path) -> None:
    with redirecting(f"unix:{tmp_path}/socket", credentials=CA.server_credentials(SERVER)) as server:
        assert await connect(server.target, ca=CA.pem) == server.target


# ---- Replaced files -------------------------------------------------------------------------------------


async def run_until(done: asyncio.Event, prepared: nnhal.aio.PreparedModel) -> int:
    count = 0
    while not done.is_set():
        (result,) = await prepared.execute([ONES, ONES])
        assert (result == 2).all()
        count += 1
    return count


async def test_files_replaced_while_calls_run(tmp_path: Path, connect: Connect) -> None:
    new_ca = Authority()
    new_client = new_ca.issue("new@example.org")
    with serving(tmp_path) as target:
        async with nnhal.aio.connect(target, ca=CA.pem, **own(CLIENT), transport="grpc") as device:
            prepared = await device.prepare(ADD)
            done = asyncio.Event()
            calls = [asyncio.create_task(run_until(done, prepared)) for _ in range(100)]
            session = device._connection.session
            for _ in range(3):  # other certificates of the same authority
                CA.issue().replace(tmp_path)
                await connect(target, ca=CA.pem, **own(CLIENT))
            new_ca.issue().replace(tmp_path)  # those of another one; first of the service, then of the clients
            with pytest.raises(HalError, match="is not signed by an authority that the client trusts"):
                await connect(target, ca=CA.pem, **own(CLIENT))
            (tmp_path / "ca.crt").write_bytes(new_ca.pem)
            await connect(target, ca=new_ca.pem, **own(new_client))
            with pytest.raises(DeadObjectError, match="does not accept the certificate of the client"):
                await connect(target, ca=new_ca.pem, **own(CLIENT))
            done.set()
            counts = await asyncio.gather(*calls)
            assert min(counts) > 0
            assert device._connection.session == session
            assert not device._connection.lost


async def test_broken_files_change_nothing(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path) as target:
        (tmp_path / "tls.key").write_bytes(SERVER.key[:50])
        await connect(target, ca=CA.pem, **own(CLIENT))
        (tmp_path / "tls.crt").unlink()
        await connect(target, ca=CA.pem, **own(CLIENT))


# ---- Everything else over TLS ---------------------------------------------------------------------------


def test_data_socket_and_health_over_tls(tmp_path: Path) -> None:
    with serving(tmp_path) as target, ExitStack() as stack:
        device = stack.enter_context(nnhal.connect(target, ca=CA.pem, **own(CLIENT)))
        assert device._connection.shm is not None
        prepared = stack.enter_context(device.prepare(ADD).result())
        with prepared.burst() as burst:
            np.testing.assert_array_equal(burst.execute([ONES, ONES])[0], [2, 2])
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], [2, 2])
        credentials = grpc.ssl_channel_credentials(CA.pem, CLIENT.key, CLIENT.cert)
        health = health_pb2_grpc.HealthStub(stack.enter_context(grpc.secure_channel(target, credentials)))
        response = health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert response.status == health_pb2.HealthCheckResponse.SERVING


def test_client_reads_its_files_again_for_a_new_connection(tmp_path: Path) -> None:
    """A certificate that has expired meanwhile is replaced, and its client reconnects without noticing."""
    files: dict[str, Any] = {name: tmp_path / f"client.{name}" for name in ("cert", "key")}
    for name, data in own(CLIENT).items():
        files[name].write_bytes(data)
    with (
        serving(tmp_path) as target,
        relay(target) as cable,
        nnhal.connect(cable.target, ca=CA.pem, **files) as device,
    ):
        new_ca = Authority()
        (tmp_path / "ca.crt").write_bytes(new_ca.pem)
        for name, data in own(new_ca.issue("client@example.org")).items():
            files[name].write_bytes(data)
        cable.cut()
        with device.prepare(ADD).result() as prepared:
            np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], [2, 2])
