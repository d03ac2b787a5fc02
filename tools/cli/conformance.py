"""`nnhal conformance`: the checks of the vendor test suite, against any device that implements the contract."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.console import make_console
from tools.cli.errors import FAILED, CommandError, reporting_errors

if TYPE_CHECKING:
    from rich.console import Console

    from tools.conformance.check import Result
    from tools.conformance.run import Task, Where
    from tools.conformance.selection import Selection
    from tools.conformance.vectors import Case


class Mode(StrEnum):
    """What is done with the vectors."""

    CHECK = "check"
    SUPPORT = "support"
    PERF = "perf"


MOST_JOBS = 8
"""More make a Python client no faster."""


@reporting_errors()
def conformance(
    *,
    target: Annotated[
        str,
        typer.Option(
            metavar="ADDR",
            help="The service: HOST:PORT or unix:PATH. [default: an embedded one]",
            show_default=False,
        ),
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="The device. [default: the service's first]", show_default=False)
    ] = "",
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Suites, with commas between them. [default: all but nnhal]"),
    ] = None,
    vectors: Annotated[Path | None, typer.Option(metavar="DIR", help="Vector files. [default: a built-in set]")] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Only vectors with such a NAME or SPEC/NAME, and checks with such an id."),
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Leave these out.")] = None,
    path: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Paths that vectors are executed on, such as SYNC,BURST, with commas between them; or all. "
            "[default: one of each kind of call]",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="N vectors of each operation and type signature.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Checks at once. [default: one for each core, at most 8]")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Also what the contract promises beyond the HAL.")] = False,
    restart_cmd: Annotated[
        str, typer.Option(metavar="CMD", help="Restarts the service, for the check of warm starts.", show_default=False)
    ] = "",
    backends_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with backends, for the embedded service.")
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="IDS", help="Backends of the embedded service, in order.", show_default=False)
    ] = "",
    mode: Annotated[
        Mode, typer.Option(help="check: judge; support: list who takes which operation; perf: time the vectors.")
    ] = Mode.CHECK,
    json_: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as one HTML page.")] = None,
    reduce: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the smallest model that fails, as a vector, for each failing one."),
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Show that faults are caught: run against devices that have one.")
    ] = False,
) -> None:
    """Run conformance checks against a device.

    Failures are shown as they come. The last line is `N passed, M failed, K skipped`; the exit status is 0 only when
    nothing failed. What the device answers with UNIMPLEMENTED is counted as unsupported.
    """
    if self_test:
        raise typer.Exit(_self_test(target, device, select or [], restart_cmd))
    console = make_console()
    selection = _selection(select, exclude)
    names = _suites(suite, strict)
    paths = _paths(path)
    cases = _cases(vectors)
    options = _service_options(target, backends_path, backend)
    if mode is not Mode.CHECK:
        with ExitStack() as stack:
            _list(console, mode, _where(stack, target, device, restart_cmd, paths, options), cases, selection, sample)
        return
    work = _tasks(names, cases, selection, sample)
    with ExitStack() as stack:
        where = _where(stack, target, device, restart_cmd, paths, options)
        results = _run(console, where, work, jobs or min(os.cpu_count() or 1, MOST_JOBS))
        if reduce:
            _reduce(console, where, cases, results, reduce)
    _report(console, where, results, json_, junit, html)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(FAILED)


def _self_test(target: str, device: str, patterns: Sequence[str], restart_command: str) -> int:
    from tools.conformance import selftest

    try:
        return selftest.main(target, device, patterns, restart_command)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _selection(select: Sequence[str] | None, exclude: Sequence[str] | None) -> "Selection":
    from tools.conformance.selection import Selection

    return Selection(tuple(select or ()), tuple(exclude or ()))


def _suites(names: str | None, strict: bool) -> tuple[str, ...]:
    from tools.conformance.run import STRICT_SUITES, suites

    chosen = tuple(filter(None, names.split(","))) if names else ()
    try:
        found = suites(chosen, strict=strict)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return tuple(dict.fromkeys((*found, *STRICT_SUITES))) if strict else found


def _paths(names: str | None) -> tuple[str, ...]:
    from tools.conformance.paths import chosen

    codes = tuple(filter(None, names.split(","))) if names else ()
    try:
        chosen(codes)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return codes


def _cases(folder: Path | None) -> "list[Case]":
    from tools.conformance import builtin, vectors

    if folder is None:
        return list(builtin.cases())
    try:
        return list(vectors.read(folder))
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read vectors: {error}") from error


def _tasks(
    names: Sequence[str], cases: "Sequence[Case]", selection: "Selection", count: int | None
) -> "Sequence[Task]":
    from tools.conformance.run import tasks

    work = tasks(names, cases, selection, count)
    if not work:
        raise CommandError("nothing is selected")
    return work


def _service_options(target: str, folder: Path | None, backends: str) -> list[str]:
    """Options of the embedded service."""
    options = ["--dynamic-backends-path", str(folder.resolve())] if folder else []
    options += ["--backends", backends] if backends else []
    if options and target:
        raise CommandError("--backends-path and --backend are for the embedded service; leave --target out")
    return options


def _list(
    console: "Console", mode: Mode, where: "Where", cases: "Sequence[Case]", selection: "Selection", count: int | None
) -> None:
    """Shows what the modes that judge nothing found."""
    from tools.conformance import modes
    from tools.conformance.selection import sample

    chosen = [case for case in cases if selection.takes_case(case)]
    chosen = chosen if count is None else sample(chosen, count)
    if not chosen:
        raise CommandError("nothing is selected")
    with where.open() as target, console.status(f"{mode}: {len(chosen)} vectors", spinner="line"):
        if mode is Mode.SUPPORT:
            table = modes.claims_table(modes.claims(target, chosen))
        else:
            table = modes.times_table(modes.times(target, chosen))
    console.print(table)


def _where(
    stack: ExitStack, target: str, device: str, restart_command: str, paths: Sequence[str], options: Sequence[str]
) -> "Where":
    """Where the device is; without a target an embedded one is started, and ended with the stack."""
    from nnhal.embedded import EmbeddedService
    from tools.conformance.run import Where

    if not target:
        service = EmbeddedService(*options)
        stack.callback(service.close)
        target = service.target
    return Where(target, device, restart_command, paths)


def _run(console: "Console", where: "Where", work: "Sequence[Task]", jobs: int) -> "list[Result]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tools.conformance.check import NotServiceSpecific
    from tools.conformance.run import run, summary

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    results: list[Result] = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(work))
        try:
            for result in run(where, work, jobs, lambda: progress.advance(bar)):
                results.append(result)
                progress.update(bar, description=summary(results))
                if result.status == "failed":
                    _show_failure(progress.console, result)
        except NotServiceSpecific as error:
            raise CommandError(str(error), FAILED) from error
    return results


def _show_failure(console: "Console", result: "Result") -> None:
    where = ", ".join(filter(None, (result.suite, result.path)))
    lines = [f"FAILED {result.name} ({where})"]
    if result.operations:
        operations = dict.fromkeys(f"{name} on {backend}" if backend else name for name, backend in result.operations)
        lines.append(f"  {', '.join(operations)}: {', '.join(dict.fromkeys(result.types))}")
    lines.append(f"  {', '.join(result.checks)}: {result.stimulus}")
    lines += [f"  expected  {result.expected}", f"  got       {result.got}"]
    console.print("\n".join(lines), soft_wrap=True)


def _reduce(
    console: "Console", where: "Where", cases: "Sequence[Case]", results: "Sequence[Result]", folder: Path
) -> None:
    from tools.conformance.reduction import write_reduced

    try:
        with console.status("reducing", spinner="line"):
            for path in write_reduced(folder, where, cases, results):
                console.print(f"reduced to {path}", soft_wrap=True)
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error}") from error


def _report(
    console: "Console",
    where: "Where",
    results: "Sequence[Result]",
    json: Path | None,
    junit: Path | None,
    html: Path | None,
) -> None:
    from tools.conformance import report
    from tools.conformance.run import summary, write_json

    try:
        if json:
            write_json(json, where, results)
        if junit:
            report.write_junit(junit, results)
        if html:
            report.write_html(html, where, results)
    except OSError as error:
        raise CommandError(f"cannot write a report: {error}") from error
    for table in report.tables(results):
        console.print(table)
    console.print(summary(results))
