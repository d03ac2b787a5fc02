"""Commands of administration, run on the service of a folder."""

import json
from pathlib import Path
from typing import Any

from nnhal_service.operating.running_services import running_services
from tests.tools.cli.command import invoke


def admin(folder: Path, *arguments: object) -> str:
    result = invoke("admin", *arguments, "--state-dir", folder / "state")
    assert result.exit_code == 0, result.output
    return result.stdout


def show(folder: Path, *arguments: object) -> Any:
    return json.loads(admin(folder, *arguments, "--json"))


def admin_socket(folder: Path) -> Path:
    (service,) = running_services(folder / "state")
    return Path(service.admin.removeprefix("unix:"))
