"""`nnhal replay`: recorded executions again, on another device, compared with what was recorded."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.console import make_console, make_progress, print_table, print_text
from nnhal_tools.cli.errors import FAILED, write_file
from nnhal_tools.cli.options import DeviceName, Target, at_least, require_writable
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
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.tables import DIGITS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nnhal.client import Device
    from nnhal.recording.archive import Record
    from nnhal_tools.conformance.run_info import RunInfo
    from nnhal_tools.replay.replayer import Repetition, Replayer
    from nnhal_tools.replay.summary import ModelSummary


class Spacing(StrEnum):
    """Times at which executions begin."""

    NONE = "none"
    RECORDED = "recorded"


@with_security
def replay(
    archive: ArchivePath,
    *,
    identity: IdentityName = "",
    target: Target = None,
    device: DeviceName = "",
    backends: Backends = "",
    backends_path: BackendsPath = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Use a service that this command starts, the default without --target.")
    ] = False,
    reference: Reference = REFERENCE,
    model: Annotated[
        str, typer.Option(metavar="DIGEST", help="Only the model whose digest starts like this.", show_default=False)
    ] = "",
    spacing: Annotated[
        Spacing, typer.Option(help="recorded: each execution as long after the first as it was; none: without a pause.")
    ] = Spacing.NONE,
    clients: Annotated[
        int, typer.Option(parser=at_least(int, 1), metavar="N", help="Number of executions at once, at most.")
    ] = 1,
    slower: Annotated[
        float | None,
        typer.Option(
            parser=at_least(float, 0),
            metavar="FACTOR",
            help="Fail if the median of a model is more than FACTOR times the recorded one.",
        ),
    ] = None,
    json_: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as one HTML page.")] = None,
) -> None:
    """Repeat recorded executions in their order, and compare outputs and durations with the recorded ones.

    Outputs are compared with the tolerances of the conformance harness; quantized values may differ by one step. For
    each model that differs, the operations are compared one by one with the reference. The exit code is 0 only if all
    outputs are equal or within the tolerance, and nothing of the archive is damaged.
    """
    from nnhal_tools.replay.replayer import Replayer

    require_writable(json_, junit, html)
    options = [] if embedded and not (backends or backends_path) else service_options(backends, backends_path)
    found = read_archive(archive, identity)
    records = [record for record in found.records if record.model.startswith(model)]
    with open_device(None if embedded else target, device, options) as under_test:
        keeps_spacing = spacing is Spacing.RECORDED
        with Replayer(under_test, found, records, keeps_spacing=keeps_spacing, clients=clients) as replayer:
            began = time.perf_counter()
            repetitions = _run(replayer)
            about = _throughput(records, time.perf_counter() - began)
            summaries = _explained(under_test, replayer, repetitions, reference, slower)
            info = _describe(under_test, target)
        _report(info, about, replayer, repetitions, summaries, (json_, junit, html))
    for problem in found.problems:
        typer.echo(f"damaged: {problem}", err=True)
    is_slower = slower is not None and any(summary.slowdown > slower for summary in summaries)
    if found.problems or is_slower or any(summary.is_different for summary in summaries):
        raise typer.Exit(FAILED)


def _run(replayer: "Replayer") -> "list[Repetition]":
    repetitions = []
    with make_progress() as progress:
        bar = progress.add_task("replaying", total=len(replayer.records))
        for repetition in replayer.run():
            repetitions.append(repetition)
            progress.advance(bar)
    return repetitions


def _throughput(records: "Sequence[Record]", seconds: float) -> str:
    """Return the number of executions per second, now and as recorded, in words."""
    span = records[-1].started - records[0].started if records else 0.0
    estimated = sum(1 / record.share for record in records) / span if span else 0.0
    recorded = f"; recorded from about {estimated:,.0f}/s" if estimated else ""
    return f"{len(records)} executions in {seconds:.1f} s, {len(records) / max(seconds, 1e-9):,.0f}/s{recorded}"


def _explained(
    device: "Device", replayer: "Replayer", repetitions: "Sequence[Repetition]", reference: str, slower: float | None
) -> "Collection[ModelSummary]":
    """Return the summaries of the models. Only if something is to be explained, a reference starts."""
    from nnhal_tools.replay.summary import explain, summarize

    summaries = summarize(repetitions, replayer.models)
    limit = slower if slower is not None else float("inf")
    unexplained = [each for each in summaries.values() if each.worst is not None or each.slowdown > limit]
    if unexplained:
        with open_device(None, "", service_options(reference, None)) as other:
            for summary in unexplained:
                explain(summary, replayer.models[summary.digest], device, other, limit)
    return summaries.values()


def _describe(device: "Device", target: str | None) -> "RunInfo":
    from nnhal_tools.conformance.run_info import DEFAULT_DEVICE, RunInfo

    label = target or "a service started by this command"
    return RunInfo(label, device.name or DEFAULT_DEVICE, device.version)


def _report(
    info: "RunInfo",
    about: str,
    replayer: "Replayer",
    repetitions: "Sequence[Repetition]",
    summaries: "Collection[ModelSummary]",
    paths: tuple[Path | None, Path | None, Path | None],
) -> None:
    from nnhal_tools.conformance.report.junit_report import write_junit
    from nnhal_tools.replay.report import summary_table, write_html, write_json
    from nnhal_tools.replay.summary import results

    found = list(results(repetitions, replayer.models, {each.digest: each for each in summaries}))
    as_json, junit, html = paths
    write_file(as_json, write_json, info, summaries, found)
    write_file(junit, write_junit, info, found)
    write_file(html, write_html, info, about, summaries, found)
    console = make_console()
    print_text(console, f"{info.describe()}\n{about}")
    print_table(console, summary_table(summaries))
    for summary in summaries:
        name = summary.digest[:DIGITS]
        first = next((each for each in found if each.name.startswith(name) and each.status == "failed"), None)
        if first is not None:
            print_text(console, f"{name}: {first.reason}")
        if summary.slowest:
            print_text(console, f"{name}: slower by {summary.slowest}")
