"""Services that form a fleet without Ray: they read each other's state, and send clients on."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.admin.v1 import admin_pb2
from nnhal_service.operating.admin.peer_exchange import client_address, member_id
from nnhal_service.peers.fleet.peer_addresses import PeerAddresses, PeerTarget
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service, worker_pids
from tests.fleet.pair import ADD, ONES
from tests.service.tls.authority import Authority
from tests.tools.cli.command import invoke


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[Service]]:
    addresses = [f"unix:{tmp_path}/{name}/admin.sock" for name in "ab"]
    services: list[Service] = []
    try:
        for name, address in zip("ab", addresses, strict=True):
            (tmp_path / name).mkdir()
            services.append(
                start_service(
                    tmp_path / name,
                    *("--backends", "CpuRef", "--admin-listen", address, "--fleet-peers", ",".join(addresses)),
                    NNHAL_STATE_DIR=str(tmp_path / name / "state"),
                )
            )
        yield services
    finally:
        for service in services:
            stop_service(service)


@pytest.mark.slow
def test_services_find_each_other_and_take_over(tmp_path: Path, services: list[Service]) -> None:
    a, b = services

    def status(name: str) -> str:
        result = invoke("fleet", "status", "--target", f"unix:{tmp_path}/{name}/admin.sock")
        assert result.exit_code == 0, result.output
        return result.output

    assert wait_until(lambda: all(status(name).startswith("2 members") for name in "ab"), 60)
    assert a.target in status("b") and b.target in status("b")
    assert invoke("admin", "drain", "--target", f"unix:{tmp_path}/a/admin.sock").exit_code == 0
    assert wait_until(lambda: "draining" in status("a"), 60)
    with nnhal.connect(a.target, timeout=60) as device:
        assert device._connection.target == b.target and a.logged("session-placed")
        listed = invoke("admin", "sessions", "--json", "--target", f"unix:{tmp_path}/b/admin.sock")
        (session,) = json.loads(listed.output)
        members = json.loads(invoke("fleet", "status", "--json", "--target", f"unix:{tmp_path}/b/admin.sock").output)
        sender, receiver = (
            next(each["id"] for each in members["members"] if each["address"] == service.target) for service in (a, b)
        )
        assert session["placement"].startswith(f"{sender}: {receiver} load ")
        prepared = device.prepare(ADD, cache=True).result(60)
        assert invoke("admin", "resume", "--target", f"unix:{tmp_path}/a/admin.sock").exit_code == 0
        assert wait_until(lambda: device._connection.members == (a.target,), 60)
        workers = worker_pids(b.process.pid)
        b.process.kill()
        assert wait_until(lambda: all(map(has_ended, workers)), 60)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert device._connection.target == a.target
    assert wait_until(lambda: status("a").startswith("1 member\n"), 60)


def test_a_name_in_dns_is_resolved_again_and_the_last_addresses_stay_without_an_answer() -> None:
    now = 0.0
    answers: list[list[str]] = [["10.0.0.1", "10.0.0.2", "10.0.0.1"], ["fd00::1"], [], ["10.0.0.3"]]

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert (host, port) == ("nnhal.test", 7)
        answer = answers.pop(0)
        if not answer:
            raise OSError("no such name")
        return [(None, None, None, "", (each, port)) for each in answer]

    addresses = PeerAddresses(PeerTarget.parse("dns:///nnhal.test:7"), look_up, lambda: now)
    assert addresses.host == "nnhal.test"
    assert [*addresses.find()] == [*addresses.find()] == ["10.0.0.1:7", "10.0.0.2:7"]
    for expected in ("[fd00::1]:7", "[fd00::1]:7", "10.0.0.3:7"):
        now += 5
        assert [*addresses.find()] == [expected]


def test_the_address_for_clients_is_that_of_the_host_that_was_reached() -> None:
    def address(*addresses: str, admin: str = "10.0.0.1:7") -> str:
        return client_address(admin_pb2.ServiceSnapshot(addresses=addresses), admin)

    assert address("unix:/a", "0.0.0.0:50051") == "10.0.0.1:50051"
    assert address("[::]:50051", admin="[fd00::1]:7") == "[fd00::1]:50051"
    assert address("10.0.0.9:50051") == "10.0.0.9:50051"
    assert address("0.0.0.0:50051", admin="unix:/a") == address("unix:/a") == ""


def test_the_name_of_a_member_stays_when_it_is_restarted() -> None:
    first = admin_pb2.ServiceSnapshot(host="h", addresses=("0.0.0.0:1",), pid=1, started_at=1.5)
    again = admin_pb2.ServiceSnapshot(host="h", addresses=("0.0.0.0:1",), pid=2, started_at=2.5)
    others = [admin_pb2.ServiceSnapshot(host="h", addresses=("0.0.0.0:2",)), admin_pb2.ServiceSnapshot(host="h")]
    assert member_id(first) == member_id(again)
    assert len({member_id(each) for each in (first, *others)}) == 3


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"fleet_peers": "dns:///unix:a"}, "expected dns:///NAME:PORT"),
        ({"fleet_peers": "a:1,b"}, "b"),
        ({"fleet_peers": "a:1", "fleet_members": Path("/a")}, "exclude each other"),
        ({"fleet_peers": "a:1", "admin_listen": "none"}, "needs the administration"),
    ],
)
def test_settings(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate(values)


def test_the_file_with_the_members(tmp_path: Path) -> None:
    assert Settings().members_file(7) is None
    assert Settings(fleet_members=tmp_path).members_file(7) == tmp_path
    assert Settings(fleet_peers="a:1", state_dir=tmp_path).members_file(7) == tmp_path / "members-7.json"


@pytest.mark.nightly
def test_members_with_tls_show_their_certificates(tmp_path: Path) -> None:
    """One service reads the other, which admits its certificate only."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    config = tmp_path / "nnhal.toml"
    config.write_text('[policy.identities."certificate:CN=member,OU=fleet,O=Acme"]\nadminister = true\n')

    def start(name: str, subject: str, peers: str) -> Service:
        folder = tmp_path / name
        folder.mkdir()
        authority.issue(common_name=subject).write(folder)
        options = {
            "--admin-listen": "127.0.0.1:0",
            "--fleet-peers": peers,
            "--tls-cert": folder / "tls.crt",
            "--tls-key": folder / "tls.key",
            "--tls-client-ca": tmp_path / "ca.pem",
            "--config": config,
            "--backends": "CpuRef",
        }
        texts = [text for pair in options.items() for text in map(str, pair)]
        return start_service(folder, *texts, NNHAL_STATE_DIR=str(folder / "state"))

    def known(name: str) -> int:
        (admin,) = (tmp_path / name / "state").glob("admin-*.sock")
        result = invoke("fleet", "status", "--json", "--target", f"unix:{admin}")
        return len(json.loads(result.output)["members"])

    services = [start("a", "member", "127.0.0.1:1")]
    try:
        pattern = re.compile(r"admin-serving port=(\d+)")
        assert wait_until(lambda: pattern.search(services[0].log.read_text()), 60)
        peers = f"127.0.0.1:{pattern.findall(services[0].log.read_text())[0]}"
        services.append(start("b", "member", peers))
        services.append(start("c", "stranger", peers))
        assert wait_until(lambda: known("b") == 2, 60)
        assert wait_until(lambda: services[2].logged("fleet-member-unread"), 60)
        assert "may not administer this service" in services[2].log.read_text() and known("c") == 1
    finally:
        for service in services:
            stop_service(service)
