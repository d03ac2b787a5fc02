"""A real service whose workers serve one identity each."""

from contextlib import ExitStack
from pathlib import Path

import pytest

import nnhal
from nnhal.errors import HalError
from nnhal_service.identity.tokens import create_token
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import start_service, stop_service


def worker_of(device: nnhal.Device) -> int:
    """Return the worker of a session, which its token names."""
    return device._connection.session[-1]


@pytest.mark.slow
def test_identities_do_not_share_a_worker(tmp_path: Path) -> None:
    created = {name: create_token(name) for name in ("alice", "bob", "carol")}
    file = tmp_path / "tokens"
    file.write_text("\n".join(line for _, line in created.values()))
    file.chmod(0o600)
    service = start_service(tmp_path, "--workers", "2", "--worker-per-identity", "--tokens", str(file))

    def connect(name: str) -> nnhal.Device:
        return nnhal.connect(service.target, token=created[name][0])

    def succeeds(name: str) -> bool:
        try:
            stack.enter_context(connect(name))
        except HalError as error:
            assert error.limit == "workers", error
            return False
        return True

    with ExitStack() as stack:
        stack.callback(stop_service, service)
        with connect("alice") as first, connect("alice") as second, stack.enter_context(connect("bob")) as bob:
            assert worker_of(first) == worker_of(second) != worker_of(bob)
            assert not succeeds("carol")
        # the worker of alice is replaced, so that nothing of hers is left in its memory
        assert wait_until(lambda: succeeds("carol"))
