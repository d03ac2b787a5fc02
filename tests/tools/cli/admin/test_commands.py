"""`nnhal admin` against one running service with two workers."""

import os
import re
import socket
import stat
import threading
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import nnhal
from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD, chain
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service, worker_pids
from tests.tools.cli.admin.commands import admin, admin_socket, show
from tests.tools.cli.command import assert_fails, invoke

pytestmark = pytest.mark.slow
ONES = np.ones(2, np.float32)


def health(target: str) -> int:
    with grpc.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest()
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=60, wait_for_ready=True).status)


def admin_pid(service: Service) -> int:
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    (pid,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "nnhal-admin")
    return int(pid)


def test_sessions_and_models_are_shown(service: Service, folder: Path) -> None:
    with nnhal.connect(service.target, timeout=60) as device, device.prepare(chain(3)).result(60) as prepared:
        for _ in range(5):
            prepared.execute([ONES])
        status = show(folder, "status")
        (session,) = status["sessions"]
        (model,) = status["models"]
        assert (session["connected"], session["models"], session["calls"]) == (True, 1, 0)
        assert session["memory_bytes"] > 0 and session["id"].startswith(f"{session['worker']}.")
        assert (model["session"], model["uses"], model["backends"]) == (session["id"], 5, ["CpuAcc"])
        assert len(model["digest"]) == 64 and model["memory_bytes"] > 0 and model["longest_s"] > 0
        assert [partition["operations"] for partition in model["partitions"]] == [["ADD"] * 3]
        assert wait_until(lambda: show(folder, "status")["load"]["executions"] >= 5, 60)
        assert model["id"] in admin(folder, "models") and session["identity"] in admin(folder, "sessions")
    assert wait_until(lambda: show(folder, "sessions") == [], 60)


def test_state_of_the_service(service: Service, folder: Path) -> None:
    status = show(folder, "status")
    assert status["state"] == "serving" and status["pid"] == service.process.pid
    assert status["addresses"] == [service.target]
    assert [worker["pid"] for worker in status["workers"]] == sorted(
        worker_pids(service.process.pid), key=[worker["pid"] for worker in status["workers"]].index
    )
    assert {backend["id"] for backend in status["devices"][0]["backends"]} >= {"CpuAcc", "CpuRef"}
    assert "2 workers" not in admin(folder, "status") and "serving" in admin(folder, "status")


def test_session_that_an_operator_ends(service: Service, folder: Path) -> None:
    with nnhal.connect(service.target, timeout=60, client_name="doomed") as device:
        prepared = device.prepare(ADD).result(60)
        prepared.execute([ONES, ONES])
        (session,) = show(folder, "sessions")
        assert session["client"] == "doomed"
        assert admin(folder, "end-session", session["id"]) == f"ended session {session['id']}\n"
        assert wait_until(lambda: session["id"] not in [each["id"] for each in show(folder, "sessions")], 60)
    gone = invoke("admin", "end-session", session["id"], "--state-dir", folder / "state")
    assert_fails(gone, 1, "there is no session", session["id"])
    assert service.logged("why='ended by an operator'")


def test_drained_worker_sends_its_clients_to_another_one(service: Service, folder: Path) -> None:
    with (
        nnhal.connect(service.target, timeout=60) as device,
        device.prepare(chain(4), cache=True).result(60) as prepared,
    ):
        np.testing.assert_array_equal(prepared.execute([ONES])[0], ONES * 16)
        (session,) = show(folder, "sessions")
        worker = session["worker"]
        assert admin(folder, "drain", "--worker", worker) == "1 worker drained\n"
        assert show(folder, "status")["state"] == "serving"
        for _ in range(20):
            np.testing.assert_array_equal(prepared.execute([ONES])[0], ONES * 16)
        workers = {each["worker"] for each in show(folder, "sessions") if each["connected"]}
        assert workers == {1 - worker}
        states = {each["slot"]: each["state"] for each in show(folder, "status")["workers"]}
        assert states[worker] in {"draining", "drained"} and states[1 - worker] == "serving"
    with nnhal.connect(service.target, timeout=60) as device, device.prepare(ADD).result(60):
        assert worker not in {each["worker"] for each in show(folder, "sessions") if each["connected"]}
    assert admin(folder, "resume", "--worker", worker) == "1 worker resumed\n"
    states = {each["slot"]: each["state"] for each in show(folder, "status")["workers"]}
    assert states == {0: "serving", 1: "serving"}


def test_drained_service_does_not_serve_until_it_is_resumed(service: Service, folder: Path) -> None:
    started = threading.Event()
    results: list[np.ndarray[Any, Any]] = []

    def execute_for_a_while(device: Any) -> None:
        with device.prepare(ADD).result(60) as prepared:
            started.set()
            results.append(prepared.execute([ONES, ONES])[0])

    with nnhal.connect(service.target, timeout=60) as device:
        thread = threading.Thread(target=execute_for_a_while, args=(device,))
        thread.start()
        assert started.wait(60)
        thread.join(60)
    assert health(service.target) == health_pb2.HealthCheckResponse.SERVING
    assert admin(folder, "drain") == "2 workers drained\n"
    assert health(service.target) == health_pb2.HealthCheckResponse.NOT_SERVING
    assert show(folder, "status")["state"] == "draining"
    with pytest.raises(nnhal.HalError, match="stopping"), nnhal.connect(service.target, timeout=60) as device:
        device.prepare(ADD).result(60)
    os.kill(worker_pids(service.process.pid)[0], 9)
    assert wait_until(lambda: [w["state"] for w in show(folder, "status")["workers"]] == ["drained"] * 2, 60)
    assert admin(folder, "resume") == "2 workers resumed\n"
    assert health(service.target) == health_pb2.HealthCheckResponse.SERVING
    with nnhal.connect(service.target, timeout=60) as device:
        device.prepare(ADD).result(60)


def test_cache_is_shown_and_cleared(service: Service, folder: Path) -> None:
    with nnhal.connect(service.target, timeout=60) as device:
        device.prepare(chain(5), cache=True).result(60).close()
    found = show(folder, "cache")
    tokens = [entry["token"] for entry in found["entries"]]
    assert tokens and found["size"] > 0 and found["misses"] > 0 and sum(found["miss_reasons"].values()) > 0
    assert admin(folder, "clear-cache", tokens[0][:20]) == "removed 1 entry\n"
    assert tokens[0] not in [entry["token"] for entry in show(folder, "cache")["entries"]]
    assert_fails(
        invoke("admin", "clear-cache", "xyz", "--state-dir", folder / "state"), 1, "no token starts with 'xyz'"
    )
    assert admin(folder, "clear-cache").startswith("removed ")
    assert show(folder, "cache")["entries"] == []


def test_settings_have_their_origins(service: Service, folder: Path) -> None:
    settings = {each["name"]: (each["value"], each["origin"]) for each in show(folder, "config")}
    assert settings["workers"] == ("2", "--workers")
    assert settings["state_dir"][1] == "NNHAL_STATE_DIR"
    assert settings["threads"] == ("512", "default")
    assert "workers = 2  # --workers\n" in admin(folder, "config")


def test_log_level_changes_in_all_processes(service: Service, folder: Path) -> None:
    assert admin(folder, "log-level", "warning") == "2 workers log from WARNING\n"
    before = service.log.read_text().count("session-opened")
    with nnhal.connect(service.target, timeout=60) as device:
        device.prepare(ADD).result(60)
    assert show(folder, "status")["log_level"] == "WARNING"
    assert service.log.read_text().count("session-opened") == before
    admin(folder, "log-level", "INFO")
    with nnhal.connect(service.target, timeout=60) as device:
        device.prepare(ADD).result(60)
    assert wait_until(lambda: service.log.read_text().count("session-opened") > before, 60)
    assert_fails(invoke("admin", "log-level", "LOUD", "--state-dir", folder / "state"), 1, "invalid level 'LOUD'")


def test_stacks_name_threads(service: Service, folder: Path) -> None:
    text = admin(folder, "stacks")
    assert text.count("==== worker") == 2 and "==== admin" in text and "Thread MainThread:" in text
    assert admin(folder, "stacks", "--worker", 1).count("====") == 1
    missing = invoke("admin", "stacks", "--worker", 9, "--state-dir", folder / "state")
    assert_fails(missing, 1, "there is no worker 9; there are 0, 1")


def test_metrics_are_those_of_all_workers(service: Service, folder: Path) -> None:
    assert "nnhal_calls_total" in admin(folder, "metrics")


def test_actions_are_in_the_audit_log(service: Service, folder: Path) -> None:
    admin(folder, "log-level", "ERROR")  # does not silence it
    admin(folder, "resume")
    admin(folder, "log-level", "INFO")
    by = f"by=user:{os.getuid()}"
    assert service.logged(f"audit action=log-level {by} to=ERROR result='2 workers log from ERROR'")
    assert service.log.read_text().count(f"audit action=GetSnapshot {by} result=ok") == 1  # one a minute
    assert service.logged(f"audit action=resume {by} worker=all result='2 workers resumed'")


def test_socket_is_private(service: Service, folder: Path) -> None:
    assert stat.S_IMODE(admin_socket(folder).lstat().st_mode) == 0o600


def test_standard_services_of_grpc(service: Service, folder: Path) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    target = f"unix:{admin_socket(folder)}"
    assert health(target) == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=60)
    names = {each.name for each in answer.list_services_response.service}
    assert "nnhal.admin.v1.Admin" in names


def test_admin_process_is_replaced(service: Service, folder: Path) -> None:
    workers = worker_pids(service.process.pid)
    old = admin_pid(service)
    with nnhal.connect(service.target, timeout=60) as device, device.prepare(ADD).result(60) as prepared:
        os.kill(old, 9)
        assert wait_until(lambda: has_ended(old), 60)
        assert show(folder, "status")["state"] == "serving"
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES * 2)
    assert worker_pids(service.process.pid) == workers
    assert service.logged(f"admin-died pid={old} how='killed by SIGKILL'")


def test_http_port_and_metrics_have_the_same_values(service: Service, folder: Path) -> None:
    (port,) = set(re.findall(r"http-serving port=(\d+)", service.log.read_text()))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as response:
        assert response.status == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        over_http = response.read().decode()
    assert "nnhal_sessions_opened_total" in over_http
    assert set(re.findall(r"^# TYPE (\w+)", over_http, re.MULTILINE)) == set(
        re.findall(r"^# TYPE (\w+)", admin(folder, "metrics"), re.MULTILINE)
    )


def test_admin_process_is_in_the_sandbox(service: Service, folder: Path) -> None:
    status = Path(f"/proc/{admin_pid(service)}/status").read_text()
    assert re.search(r"^NoNewPrivs:\s1$", status, re.MULTILINE) and re.search(r"^Seccomp:\s2$", status, re.MULTILINE)


def test_garbage_on_the_socket_disturbs_nothing(service: Service, folder: Path) -> None:
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 100):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(admin_socket(folder)))
            connection.sendall(data)
    with grpc.insecure_channel(f"unix:{admin_socket(folder)}") as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        assert stub.GetSnapshot(admin_pb2.GetSnapshotRequest(), timeout=60).snapshot.state == "serving"


def test_reload_with_invalid_settings_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "nnhal.toml"
    config.write_text("threads = 8\n")
    service = start_service(tmp_path, "--config", str(config), NNHAL_STATE_DIR=str(tmp_path / "state"))
    workers = worker_pids(service.process.pid)
    config.write_text("threads = -1\n")
    result = invoke("reload", "--state-dir", tmp_path / "state")
    assert_fails(result, 1, "nnhal.toml: threads: invalid value -1")
    assert worker_pids(service.process.pid) == workers
    config.write_text("threads = 9\n")
    assert invoke("reload", "--state-dir", tmp_path / "state").exit_code == 0
    assert wait_until(lambda: service.logged(" reloaded"), 60)
    assert f"threads = 9  # {config}\n" in admin(tmp_path, "config")
    assert stop_service(service) == 0
