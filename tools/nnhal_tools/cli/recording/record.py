"""`nnhal record`: start and stop the recording of executions, and make test vectors of records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.admin.connection import Service, act, snapshot_command
from nnhal_tools.cli.console import format_bytes, print_text, printable
from nnhal_tools.cli.errors import FAILED, CommandError, writing
from nnhal_tools.cli.options import DeviceName, StateDirectory, Target, require_writable_folder
from nnhal_tools.cli.recording.devices import (
    REFERENCE,
    ArchivePath,
    Backends,
    BackendsPath,
    IdentityName,
    Reference,
    open_device,
    read_archive,
    service_options,
)
from nnhal_tools.cli.recording.rules import Devices, Identities, Models, describe_rules
from nnhal_tools.cli.security_options import client_command
from nnhal_tools.tables import DIGITS, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from nnhal.client import Device
    from nnhal.recording.archive import Archive, Record
    from nnhal.types import Model
    from nnhal_tools.conformance.vectors.case import Case

record = typer.Typer(
    help="Record executions of a running service, which was started with --record FOLDER (docs/recording.md). "
    "`nnhal replay` repeats them on another device.",
    no_args_is_help=True,
)


@client_command(record)
def start(
    share: Annotated[float, typer.Option(metavar="SHARE", help="Part of the executions to record.")] = 0.01,
    identity: Identities = None,
    model: Models = None,
    device: Devices = None,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="Record values, and not only shapes, times and digests.")
    ] = True,
    target: Service = None,
    state_dir: StateDirectory = None,
) -> None:
    """Record executions from now on, in all workers, until the next start or reload of the service."""
    rules = {"share": share, "identities": identity, "models": model, "devices": device, "without_values": not values}
    act(target, state_dir, "SetRecording", **rules)


@client_command(record)
def stop(target: Service = None, state_dir: StateDirectory = None) -> None:
    """Record no more. The archives are complete then."""
    act(target, state_dir, "SetRecording", share=0)


@snapshot_command(record, "recording")
def status(console: "Console", snapshot: dict[str, Any]) -> None:
    """Show what is recorded, and how much the running workers have written."""
    found = snapshot["recording"]
    if not found["folder"]:
        print_text(console, "the service has no folder for recordings; start it with --record FOLDER")
        return
    values = "with values" if found["values"] else "without values"
    print_text(console, printable(describe_rules("records", found, values)))
    lost = f"; {found['lost']} lost" if found["lost"] else ""
    print_text(
        console, f"{counted(found['records'], 'record')}, {format_bytes(found['bytes'])} to {found['folder']}{lost}"
    )


@client_command(record)
def to_vectors(
    archive: ArchivePath,
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the vectors.")],
    *,
    identity: IdentityName = "",
    minimize: Annotated[
        bool,
        typer.Option("--minimize", help="Write only what differs on a device, as the smallest model that differs."),
    ] = False,
    target: Target = None,
    device: DeviceName = "",
    backends: Backends = "",
    backends_path: BackendsPath = None,
    reference: Reference = REFERENCE,
) -> None:
    """Write records as test vectors, for `nnhal conformance --vectors OUT`.

    Of records that cover the same, one is taken: the same model, shapes, and ranges of the values of each tensor. With
    --minimize, the vectors expect the values of the reference.
    """
    from nnhal_tools.conformance.reduce import write_case

    require_writable_folder(folder)
    found = read_archive(archive, identity)
    if minimize:
        with (
            open_device(target, device, service_options(backends, backends_path)) as under_test,
            open_device(None, "", service_options(reference, None)) as other,
        ):
            cases = dict(_minimized(found, under_test, other))
    else:
        cases = dict(_recorded(found))
    if not cases:
        raise CommandError("no record differs" if minimize else "no record can be a vector", FAILED)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, case in cases.items():
            write_case(folder / f"{name}.jsonl.gz", case)
    typer.echo(f"wrote {counted(len(cases), 'vector')} of {counted(len(found.records), 'record')} to {folder}")


def _chosen(archive: "Archive") -> "Iterator[tuple[Record, Model]]":
    """Yield the records to convert. Those that cannot be are named on stderr."""
    from nnhal_tools.replay.vectors import choose_records

    for problem in archive.problems:
        typer.echo(f"damaged: {problem}", err=True)
    yield from choose_records(archive)


def _recorded(archive: "Archive") -> "Iterator[tuple[str, Case]]":
    """Yield the chosen records as vectors, by name."""
    from nnhal_tools.replay.vectors import NoVectorError, recorded_case

    for record_, model in _chosen(archive):
        try:
            case = recorded_case(record_, model)
        except NoVectorError as error:
            typer.echo(f"{record_.name} is left out: {error}", err=True)
            continue
        yield case.name, case


def _minimized(archive: "Archive", under_test: "Device", other: "Device") -> "Iterator[tuple[str, Case]]":
    """Yield a vector for each model that differs, by name."""
    from nnhal.errors import HalError
    from nnhal_tools.replay.blame import ReferenceRun
    from nnhal_tools.replay.replayer import Replayer
    from nnhal_tools.replay.summary import summarize
    from nnhal_tools.replay.vectors import NoVectorError, minimize

    with Replayer(under_test, archive, archive.records, keeps_spacing=False, clients=1) as replayer:
        summaries = summarize(replayer.run(), replayer.models)
    for digest, summary in summaries.items():
        model, worst = replayer.models[digest].model, summary.worst
        if model is None or worst is None:
            continue
        try:
            run = ReferenceRun(other, model, worst.record.values()[0])
            blame = run.first_difference(under_test)
            if blame is None:
                typer.echo(f"{digest[:DIGITS]}: no operation differs from the reference when it runs alone", err=True)
                continue
            name = f"{digest[:DIGITS]}_{blame.operation}_{blame.name.replace(' ', '_')}"
            yield name, minimize(name, run, blame, under_test)
        except (HalError, NoVectorError) as error:
            typer.echo(f"{digest[:DIGITS]} is left out: {error}", err=True)
