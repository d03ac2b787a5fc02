"""The HTTP port of a service with clients: what it shows, and that the admin process may end at any time."""

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from os import kill
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal.types import OperationType
from tests.concurrency import wait_until
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.service_process import Service, http_address, start_service, stop_service

TIMEOUT_S = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("http")
    service = start_service(folder, "--http-listen", "127.0.0.1:0", "--state-dir", str(folder / "state"))
    yield service
    stop_service(service)


def address(service: Service) -> str:
    return f"http://{http_address(service)}"


def read(service: Service, path: str) -> Any:
    with urllib.request.urlopen(address(service) + path, timeout=TIMEOUT_S) as response:
        body = response.read()
        return json.loads(body) if response.headers["content-type"] == "application/json" else body.decode()


def is_ready(service: Service) -> bool:
    try:
        return bool(read(service, "/readyz") == "ready\n")
    except urllib.error.HTTPError:
        return False


def test_clients_and_models_are_shown(service: Service) -> None:
    assert wait_until(lambda: is_ready(service), TIMEOUT_S)
    with (
        nnhal.connect(service.target) as device,
        device.prepare(chain(3)).result(TIMEOUT_S) as prepared,
    ):
        for _ in range(5):
            prepared.execute([np.ones(2, np.float32)])
        assert wait_until(lambda: read(service, "/api/v1/service")["counts"]["models"] == 1, TIMEOUT_S)
        (session,) = read(service, "/api/v1/sessions")
        (model,) = read(service, "/api/v1/models")
        assert (session["models"], session["connected"], session["identity"]) == (1, True, "anonymous")
        assert (model["session"], model["uses"]) == (session["id"], 5)
        assert [name for each in model["partitions"] for name in each["operations"]] == ["ADD"] * 3
        assert wait_until(lambda: read(service, "/api/v1/service")["load"]["executions"] == 5, TIMEOUT_S)
        assert sum(read(service, "/api/v1/service")["load"]["durations"]) == 5
        assert "nnhal_calls_total" in read(service, "/metrics")
    assert wait_until(lambda: read(service, "/api/v1/sessions") == [], TIMEOUT_S)


def test_abilities_are_those_of_the_devices(service: Service) -> None:
    (ability,) = read(service, "/api/v1/abilities")
    by_operation = {each["operation"]: each for each in ability["operations"]}
    assert set(by_operation) == {type_.name for type_ in OperationType}
    assert by_operation["LSH_PROJECTION"]["answers"] == {"CpuAcc": "no", "CpuRef": "yes"}
    assert all(each["exec_time"] > 0 for each in ability["performance"])


def test_the_page_has_its_files(service: Service) -> None:
    page = read(service, "/")
    for file in re.findall(r'(?:href|src)="([\w/.]+\.\w+)"', page):
        assert read(service, f"/{file}"), file


def test_nothing_is_changed_without_identities(service: Service) -> None:
    headers = {"content-type": "application/json", "x-nnhal-request": "1"}
    request = urllib.request.Request(address(service) + "/api/v1/actions/reload", b"{}", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=TIMEOUT_S)
    assert not service.logged("reloading")


def test_the_port_survives_the_admin_process(service: Service) -> None:
    before = address(service)
    (pid,) = (
        int(task)
        for task in Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
        if Path(f"/proc/{task}/comm").read_text().strip() == "nnhal-admin"
    )
    with nnhal.connect(service.target) as device:
        kill(pid, signal.SIGKILL)
        assert wait_until(lambda: service.log.read_text().count("http-serving") == 2, TIMEOUT_S)
        assert wait_until(lambda: is_ready(service), TIMEOUT_S)
        assert len(read(service, "/api/v1/sessions")) == 1
        assert device.type.name == "CPU"
    assert address(service) == before
