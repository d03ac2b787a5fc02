"""Devices for commands on recordings: a service that runs, or one that the command starts, and a reference."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from nnhal_tools.cli.errors import FAILED, CommandError, as_command_errors
from nnhal_tools.cli.options import CONNECT_S

if TYPE_CHECKING:
    from nnhal.client import Device
    from nnhal.recording.archive import Archive

REFERENCE = "CpuRef"
"""Default backends that tell which operation is wrong."""

ArchivePath: TypeAlias = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="An archive, or a folder of archives.")]
IdentityName: TypeAlias = Annotated[
    str, typer.Option("--identity", metavar="IDENTITY", help="Whose records. Needed if there are records of several.")
]
Backends: TypeAlias = Annotated[
    str, typer.Option("--backends", metavar="IDS", help="Backends of a service that this command starts.")
]
BackendsPath: TypeAlias = Annotated[
    Path | None, typer.Option("--backends-path", metavar="DIR", help="A folder with backends for that service.")
]
Reference: TypeAlias = Annotated[
    str, typer.Option("--reference", metavar="IDS", help="Backends that tell which operation is wrong.")
]


def read_archive(path: Path, identity: str) -> "Archive":
    """Return an archive.

    Raises:
        CommandError: it cannot be read, or has no records.
    """
    from nnhal.recording.archive import Archive
    from nnhal.recording.members import RecordingError

    with as_command_errors(RecordingError, OSError):
        archive = Archive(path, identity)
    if not archive.records:
        raise CommandError("; ".join([f"{path} has no records", *archive.problems]))
    return archive


def service_options(backends: str, path: Path | None) -> list[str]:
    """Return the options of a service that a command starts."""
    options = ["--backends", backends] if backends else []
    return [*options, "--dynamic-backends-path", str(path.resolve())] if path else options


@contextmanager
def open_device(target: str | None, name: str, options: list[str]) -> Iterator["Device"]:
    """Yield a device: that of a service at an address, or of an embedded service with options."""
    import nnhal
    from nnhal.embedded import EmbeddedService
    from nnhal.errors import HalError

    if target and options:
        raise CommandError("--backends and --backends-path apply to a service that this command starts; omit --target")
    with as_command_errors(HalError, exit_code=FAILED):
        if target:
            with nnhal.connect(target, device=name, timeout=CONNECT_S) as device:
                yield device
        else:
            with (
                closing(EmbeddedService("--no-cache", *options)) as service,
                nnhal.connect(service.target, device=name, timeout=CONNECT_S) as device,
            ):
                yield device
