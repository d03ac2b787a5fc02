"""`nnhal conformance`: the checks of the vendor test suite, against any device that implements the contract."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal.cpu import available_cpus
from nnhal_tools.cli.console import make_console, make_progress, print_table, print_text, show_status
from nnhal_tools.cli.errors import FAILED, CommandError, as_command_errors, write_file
from nnhal_tools.cli.options import (
    CONNECT_S,
    DeviceName,
    at_least,
    parse_target,
    require_writable,
    require_writable_folder,
)
from nnhal_tools.cli.recording.devices import service_options
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from rich.console import Console

    from nnhal_tools.conformance.check import Result
    from nnhal_tools.conformance.device.control import ServiceControl
    from nnhal_tools.conformance.device.ndk_library import NdkLibrary
    from nnhal_tools.conformance.run_info import RunInfo
    from nnhal_tools.conformance.runner import CheckTask, TargetConfig
    from nnhal_tools.conformance.selection import Selection
    from nnhal_tools.conformance.vectors.case import Case


class Mode(StrEnum):
    """Uses of the vectors."""

    CHECK = "check"
    SUPPORT = "support"
    PERF = "perf"


MAX_JOBS = 8
"""More jobs do not make a Python client faster."""

_CHECKOUT = Path(__file__).resolve().parents[3]
_SELF_TEST = Path("tests/tools/conformance/selftest")
"""Folder of the self-test in a checkout."""


@with_security
def conformance(
    *,
    target: Annotated[
        str | None,
        typer.Option(
            parser=parse_target,
            metavar="ADDR",
            help="The service: HOST:PORT, unix:PATH or grpcs://HOST:PORT. [default: an embedded one]",
            show_default=False,
        ),
    ] = None,
    device: DeviceName = "",
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Suites, separated by commas. [default: all except nnhal, host and resilience]"
        ),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of vector files. [default: built-in vectors]")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Only vectors whose NAME or SPEC/NAME matches, and checks whose id matches."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Without the vectors, checks and suites that match.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Paths to execute vectors on, separated by commas, for example SYNC,BURST; or all; or NDK and "
            "NDK/BUFFER, through the C library. [default: one of each kind of call]",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            parser=at_least(int, 1), metavar="N", help="Only N vectors for each operation and type signature."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            parser=at_least(int, 1), metavar="N", help="Number of concurrent checks. [default: one per core, at most 8]"
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also check the promises of the contract that go further than the HAL.")
    ] = False,
    restart_cmd: Annotated[
        str,
        typer.Option(
            metavar="CMD", help="Command that restarts the service, for the check of warm starts.", show_default=False
        ),
    ] = "",
    kill_cmd: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Command that kills a process of the service, for the suite resilience; docs/conformance.md.",
            show_default=False,
        ),
    ] = "",
    stop_cmd: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Command that asks a process of the service to stop, for the same suite.",
            show_default=False,
        ),
    ] = "",
    recovery_s: Annotated[
        float,
        typer.Option(
            parser=at_least(float, 0),
            metavar="S",
            help="Time in which the service must respond after that, in seconds.",
        ),
    ] = 10.0,
    backends_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with backends, for the embedded service.")
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="IDS", help="Backends of the embedded service, in order.", show_default=False)
    ] = "",
    no_merge_partitions: Annotated[
        bool,
        typer.Option(
            "--no-merge-partitions",
            help="Let each backend of the embedded service run all operations that it supports (docs/placement.md).",
        ),
    ] = False,
    mode: Annotated[
        Mode,
        typer.Option(help="check: run the checks; support: list the backend of each operation; perf: measure times."),
    ] = Mode.CHECK,
    json_: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as one HTML page.")] = None,
    reduce: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For each failing vector, write the smallest model that fails as a vector."),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Run the checks against faulty devices; each fault must be caught. In a checkout of nnhal only.",
        ),
    ] = False,
) -> None:
    """Run conformance checks against a device.

    Failures are shown at once. The last line is `N passed, M failed, K skipped`. The exit code is 0 only if nothing
    failed, not even a backend that others replaced. Checks for which the device returns UNIMPLEMENTED are counted as
    unsupported.
    """
    from nnhal_tools.conformance.device.control import ServiceControl
    from nnhal_tools.conformance.paths import select_paths
    from nnhal_tools.conformance.runner import TargetConfig
    from nnhal_tools.conformance.selection import Selection

    target = target or ""
    control = ServiceControl(restart_cmd, kill_cmd, stop_cmd, recovery_s)
    if self_test:
        raise typer.Exit(_self_test(target, device, select or [], control))
    require_writable(json_, junit, html)
    require_writable_folder(reduce)
    console = make_console()
    if mode is not Mode.CHECK:
        for option, file in {"--junit": junit, "--html": html, "--reduce": reduce}.items():
            if file is not None:
                problem = f"{option} needs results of checks, and --mode {mode} runs none; it writes --json only"
                raise CommandError(problem)
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    with as_command_errors(ValueError):
        names, paths = _select_suites(_names(suite), strict), _names(path)
        select_paths(paths)
    cases = _read_cases(vectors)
    options = _service_options(target, backends_path, backend, no_merge_partitions)
    opened = _open_device(TargetConfig(target, device, control, paths), options)
    if mode is not Mode.CHECK:
        with opened as (config, info):
            _show_table(console, mode, config, info, _select_cases(cases, selection, sample), json_)
        return
    tasks = _plan_tasks(names, cases, selection, sample)
    with opened as (config, info):
        results = _run(console, config, tasks, jobs or min(available_cpus(), MAX_JOBS))
        if reduce:
            _reduce(console, config, cases, results, reduce)
    _report(console, info, results, json_, junit, html)
    if any(result.status == "failed" or result.faults for result in results):
        raise typer.Exit(FAILED)


def _reporting_dead_devices() -> AbstractContextManager[None]:
    """Turn the error of a service that does not respond into an error of the command."""
    from nnhal_tools.conformance.check import NotServiceSpecific

    return as_command_errors(NotServiceSpecific, exit_code=FAILED)


def _self_test(target: str, device: str, patterns: Sequence[str], control: "ServiceControl") -> int:
    """Run the self-test, which belongs to the tests of a checkout, and return its exit code."""
    if not (_CHECKOUT / _SELF_TEST / "__init__.py").is_file():
        raise CommandError("the self-test is not installed: run `make self-test` in a checkout of nnhal's sources")
    sys.path.insert(0, str(_CHECKOUT))
    selftest = import_module(_SELF_TEST.as_posix().replace("/", "."))
    with as_command_errors(ValueError), _reporting_dead_devices():
        exit_code: int = selftest.main(target, device, patterns, control)
    return exit_code


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names of an option, which are separated by commas."""
    return tuple(filter(None, (text or "").split(",")))


def _select_suites(requested: Sequence[str], strict: bool) -> tuple[str, ...]:
    from nnhal_tools.conformance.runner import STRICT_SUITES, select_suites

    suites = select_suites(requested, strict=strict)
    return tuple(dict.fromkeys((*suites, *STRICT_SUITES))) if strict else suites


def _read_cases(folder: Path | None) -> "list[Case]":
    from nnhal_tools.conformance.vectors import builtin
    from nnhal_tools.conformance.vectors.case import read_cases

    if folder is None:
        return list(builtin.cases())
    try:
        return list(read_cases(folder))
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read vectors: {error}") from error


def _plan_tasks(
    names: Sequence[str], cases: "Sequence[Case]", selection: "Selection", count: int | None
) -> "Sequence[CheckTask]":
    from nnhal_tools.conformance.runner import plan_tasks

    tasks = plan_tasks(names, cases, selection, count)
    if not tasks:
        raise CommandError("the options select no checks")
    return tasks


def _service_options(target: str, folder: Path | None, backends: str, no_merge: bool) -> list[str]:
    """Return the options of the embedded service."""
    if folder and not folder.is_dir():
        raise CommandError(f"--backends-path: {folder} is not a folder")
    options = [*service_options(backends, folder), *(["--no-merge-partitions"] if no_merge else [])]
    if options and target:
        names = "--backends-path, --backend and --no-merge-partitions"
        raise CommandError(f"{names} apply to the embedded service; omit --target")
    return options


def _select_cases(cases: "Sequence[Case]", selection: "Selection", count: int | None) -> "Sequence[Case]":
    from nnhal_tools.conformance.selection import sample_cases

    selected = [case for case in cases if selection.matches_case(case)]
    selected = selected if count is None else sample_cases(selected, count)
    if not selected:
        raise CommandError("the options select no vectors")
    return selected


def _show_table(
    console: "Console",
    mode: Mode,
    config: "TargetConfig",
    info: "RunInfo",
    cases: "Sequence[Case]",
    json_path: Path | None,
) -> None:
    """Show the table of the modes SUPPORT and PERF, and write its figures as JSON if there is a path."""
    from nnhal_tools.conformance import support_and_perf
    from nnhal_tools.conformance.report.json_report import write_figures

    with config.open() as target, show_status(f"{mode}: {len(cases)} vectors"):
        if mode is Mode.SUPPORT:
            support = support_and_perf.count_support(target, cases)
            figures: object = support
            table = support_and_perf.support_table(support)
        else:
            timings = support_and_perf.measure_times(target, cases)
            figures = [asdict(timing) for timing in timings]
            table = support_and_perf.timing_table(timings)
    write_file(json_path, write_figures, info, mode, figures)
    print_text(console, info.describe())
    print_table(console, table)


@contextmanager
def _open_device(config: "TargetConfig", service_options: Sequence[str]) -> "Iterator[tuple[TargetConfig, RunInfo]]":
    """Yield the device and its description. If it has no address, an embedded service runs meanwhile."""
    import nnhal
    from nnhal.embedded import EmbeddedService
    from nnhal_tools.conformance.run_info import describe_run

    label = "" if config.address else "a service started by this command"
    with ExitStack() as stack, _reporting_dead_devices():
        if not config.address:
            service = stack.enter_context(closing(EmbeddedService(*service_options)))
            config = replace(config, address=service.target)
        if config.device:  # a wrong name would fail every check
            nnhal.connect(config.address, device=config.device, timeout=CONNECT_S, transport="grpc").close()
        config = replace(config, ndk=_load_ndk(config))
        with config.open() as target:
            info = describe_run(target, label)
        yield config, info


def _load_ndk(config: "TargetConfig") -> "NdkLibrary | None":
    """Return the C library, whose first device is that of the service, if the path NDK is selected."""
    from nnhal_ndk.build import BuildError, find_or_build
    from nnhal_tools.conformance.device.ndk_library import NdkLibrary
    from nnhal_tools.conformance.paths import NDK, NDK_PATHS

    if not set(NDK_PATHS) & set(config.paths):
        return None
    if config.device:
        raise CommandError(f"the path {NDK} uses the first device of the service; omit --device")
    os.environ["NNHAL_TARGET"] = config.address
    os.environ.setdefault("NNHAL_NDK_LOG", "error")  # failures of calls are expected; results report them
    with as_command_errors(BuildError, exit_code=FAILED):
        return NdkLibrary(find_or_build())


def _run(console: "Console", config: "TargetConfig", tasks: "Sequence[CheckTask]", jobs: int) -> "list[Result]":
    from nnhal_tools.conformance.report.counts import Counts, counts_line
    from nnhal_tools.conformance.report.failures import FailureGroups
    from nnhal_tools.conformance.runner import run_tasks

    results: list[Result] = []
    counts: Counts = Counts()
    failures = FailureGroups()
    with make_progress(console) as progress:
        bar = progress.add_task("", total=len(tasks))
        for result in run_tasks(config, tasks, jobs, lambda: progress.advance(bar)):
            results.append(result)
            counts[result.status] += 1
            progress.update(bar, description=counts_line(counts))
            if failures.is_new(result):
                _show_failure(console, result)
    for line in failures.repetitions():
        print_text(console, line)
    return results


def _show_failure(console: "Console", result: "Result") -> None:
    where = ", ".join(filter(None, (result.suite, result.path)))
    lines = [f"FAILED {result.name} ({where})"]
    if result.operations:
        operations = dict.fromkeys(f"{name} on {backend}" if backend else name for name, backend in result.operations)
        lines.append(f"  {', '.join(operations)}: {', '.join(dict.fromkeys(result.types))}")
    lines.append(f"  {', '.join(result.checks)}: {result.stimulus}")
    lines += [f"  expected  {result.expected}", f"  got       {result.got}"]
    print_text(console, "\n".join(lines))


def _reduce(
    console: "Console", config: "TargetConfig", cases: "Sequence[Case]", results: "Sequence[Result]", folder: Path
) -> None:
    from nnhal_tools.conformance.reduce import write_reduced

    try:
        with console.status("reducing", spinner="line"):
            for path in write_reduced(folder, config, cases, results):
                print_text(console, f"reduced to {path}")
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error}") from error


def _report(
    console: "Console",
    info: "RunInfo",
    results: "Sequence[Result]",
    json: Path | None,
    junit: Path | None,
    html: Path | None,
) -> None:
    from nnhal_tools.conformance.report.counts import backend_warnings, summary_line
    from nnhal_tools.conformance.report.html_report import write_html
    from nnhal_tools.conformance.report.json_report import write_json
    from nnhal_tools.conformance.report.junit_report import write_junit
    from nnhal_tools.conformance.report.terminal_tables import summary_tables

    for path, write in ((json, write_json), (junit, write_junit), (html, write_html)):
        write_file(path, write, info, results)
    print_text(console, info.describe())
    for table in summary_tables(results, info):
        print_table(console, table)
    for line in backend_warnings(results, info):
        print_text(console, line)
    console.print(summary_line(results))
