"""Service that runs the witness, a plug-in of the harness."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError
from nnhal_tools.conformance.check import NotServiceSpecific
from nnhal_tools.conformance.device.target import Target

ID = "Witness"
EXTENSION = "org.example.nnhal.witness"
FILES = {"witness.py.txt": "Harness_Witness_backend.py", "witness_creators.py.txt": "witness_creators.py"}
"""File of the plug-in by source. The second one is beside the first, which imports it."""


class HostedWitness:
    """Service with the witness as its backend, and a session on it.

    The folder is that of the plug-in. A file that the witness waits for is created there.
    """

    def __init__(self, target: Target, folder: Path, service: EmbeddedService) -> None:
        self.target, self.folder, self._service = target, folder, service

    @property
    def trace(self) -> Sequence[str]:
        """Events that the witness has recorded in the service, in order."""
        path, prefix = self.folder / "trace", f"{self._service.pid} "
        lines = path.read_text().splitlines() if path.exists() else []
        events = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        return self.target.interposer.edit_trace(events)

    def let(self, name: str) -> None:
        """Create a file that the witness waits for."""
        (self.folder / name).touch()

    def stop(self) -> None:
        """Stop the service, and wait for its end."""
        self._service.close()


def write_witness(folder: Path, mode: str, edit: str) -> None:
    """Write the plug-in and its settings. `edit`: added to its sources."""
    for source, name in FILES.items():
        (folder / name).write_text(Path(__file__).with_name(source).read_text() + edit)
    (folder / "settings.json").write_text(json.dumps({"mode": mode, "extension": EXTENSION}))


@contextmanager
def hosted_witness(
    target: Target, mode: str = "", backends: str = ID, *options: str, edit: str = ""
) -> Iterator[HostedWitness]:
    """Start a service with the witness.

    Args:
        target: the session of the check, whose interposer may inject faults.
        mode: how the witness misbehaves.
        backends: the backends of the service, in order.
        options: further options of `nnhal serve`.
        edit: text that is added to the sources of the witness.
    """
    with tempfile.TemporaryDirectory(prefix="nnhal-witness-") as name:
        folder = Path(name)
        write_witness(folder, mode, edit)
        try:
            service = EmbeddedService("--dynamic-backends-path", name, "--backends", backends, "--no-cache", *options)
        except DeadObjectError as error:
            raise NotServiceSpecific(str(error)) from error
        try:
            with (
                target.interposer.proxy(service.target) as address,
                Target(address, interposer=target.interposer) as session,
            ):
                yield HostedWitness(session, folder, service)
        finally:
            service.close()
