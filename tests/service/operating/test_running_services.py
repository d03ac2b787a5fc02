"""Files of running services: those of services that were killed do not count."""

import json
import os
from pathlib import Path

from nnhal_service.operating.running_services import RunningService, ServiceFile, running_services


def test_running_service_is_found_until_it_ends(tmp_path: Path) -> None:
    assert running_services(tmp_path) == []
    service = ServiceFile(tmp_path, ["127.0.0.1:1", "unix:/s"])
    assert running_services(tmp_path) == [RunningService(os.getpid(), ("127.0.0.1:1", "unix:/s"))]
    service.close()
    assert running_services(tmp_path) == []


def test_file_of_a_killed_service_is_removed(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    left = tmp_path / "services" / "1.json"
    left.write_text(json.dumps({"pid": 1, "addresses": []}))
    assert running_services(tmp_path) == [] and not left.exists()


def test_file_that_is_being_written_is_passed_over(tmp_path: Path) -> None:
    service = ServiceFile(tmp_path, ["127.0.0.1:1"])
    (path,) = (tmp_path / "services").iterdir()
    text = path.read_text()
    path.write_text(text[:5])
    assert running_services(tmp_path) == [] and path.exists()
    path.write_text(text)
    assert running_services(tmp_path) == [RunningService(os.getpid(), ("127.0.0.1:1",))]
    service.close()
    assert not path.exists()
