"""Well-behaved client beside attacks: durations of its calls alone and under each attack.

`python -m tests.benchmark.attacks` starts a service for each attack, and a client that executes a small model, opens
sessions, and checks health. It prints the median and the 99th percentile of each, in milliseconds, and the longest
health check. The attacker is a process of the lowest priority. Names select attacks, for example
`python -m tests.benchmark.attacks "long shape"`; everything after `--` is passed to `nnhal serve`, for example
`-- --workers 2`. `--nnhal COMMAND` attacks another release. With `--tokens` the client and the attacker have an
identity each; only the attacks of late executions send tokens. `--table` prints the 99th percentiles alone and under
attack as rows of Markdown.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnhal_service.identity.tokens import create_token
from tests.benchmark.attacks.attack import ATTACKS
from tests.benchmark.attacks.attacker import run_attack, start_attacker
from tests.benchmark.attacks.well_behaved_client import EXECUTE, HEALTH, SESSION
from tests.end_to_end.support.service_process import Service, start_service

_ALONE, _ATTACKED, _AFTER = "alone", "attacked", "after"
_KINDS = (EXECUTE, SESSION, HEALTH)
_WARM_UP_S = 2.0
_STOP_S = 60.0


def measure(name: str, options: Sequence[str], chosen: argparse.Namespace) -> None:
    """Run one attack on a new service, and print the figures of the client.

    Args:
        name: name of the attack.
        options: more options of `nnhal serve`.
        chosen: the options of this command.
    """
    seconds, nnhal = chosen.seconds, chosen.nnhal
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if chosen.tokens:
            environment["NNHAL_TOKEN"], os.environ["NNHAL_TOKEN"] = _write_tokens(Path(folder, "tokens"))
            options = [*options, "--tokens", f"{folder}/tokens"]
        service = _start_other(nnhal, Path(folder), options) if nnhal else start_service(Path(folder), *options)
        try:
            client = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmark.attacks.well_behaved_client", service.target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            _begin(client, "warm-up")
            with start_attacker() as attacker:
                time.sleep(_WARM_UP_S)
                _begin(client, _ALONE)
                time.sleep(seconds)
                _begin(client, _ATTACKED)
                attacked = attacker.submit(run_attack, name, service.target, seconds).result()
            _begin(client, _AFTER)
            time.sleep(seconds / 2)
            output, _ = client.communicate(timeout=10 * _STOP_S)
            ended = service.process.poll()
        finally:
            stopped = _stop(service)
    if chosen.table:
        _show_row(name, json.loads(output), "ended" if ended is not None else stopped)
        return
    print(f"\n{name}: {attacked}")
    if ended is not None:
        print(f"  THE SERVICE ENDED with status {ended}")
    _show(json.loads(output))
    print(f"  {stopped}", flush=True)


def _write_tokens(file: Path) -> tuple[str, str]:
    """Write the file of tokens of two identities. Return the tokens."""
    (first, first_line), (second, second_line) = create_token("client"), create_token("attacker")
    file.write_text(f"{first_line}\n{second_line}\n")
    file.chmod(0o600)
    return first, second


def _start_other(command: str, folder: Path, options: Sequence[str]) -> Service:
    """Start the service of another release."""
    log, environment = folder / "service.log", {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": ""}
    environment["NNHAL_CACHE_DIR"] = str(folder / "cache")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command.split(), "serve", "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
    assert process.stdout is not None
    return Service(process.stdout.readline().removeprefix("listening on ").strip(), process, log)


def _begin(client: "subprocess.Popen[str]", phase: str) -> None:
    assert client.stdin is not None
    client.stdin.write(f"{phase}\n")
    client.stdin.flush()


def _stop(service: Service) -> str:
    """Stop a service, and return how long that took."""
    start = time.monotonic()
    service.process.terminate()
    with suppress(subprocess.TimeoutExpired):
        service.process.wait(_STOP_S)
    service.process.kill()
    assert service.process.stdout is not None
    service.process.stdout.close()
    return f"stop: {time.monotonic() - start:.1f} s, status {service.process.wait()}"


def _show(result: dict[str, Any]) -> None:
    for kind in _KINDS:
        columns = []
        for phase in (_ALONE, _ATTACKED, _AFTER):
            durations = sorted(result["durations"].get(phase, {}).get(kind, []))
            failures = result["failures"].get(phase, {}).get(kind, {})
            columns.append(f"{phase} {_summary(durations)}")
            columns += [f"FAILED {count} x {text[:60]}" for text, count in failures.items()]
        print(f"  {kind:8}" + "; ".join(columns))


def _show_row(name: str, result: dict[str, Any], ended: str) -> None:
    """Print a row: for each kind of call its p99 alone and under attack, and the number of failed calls."""
    cells = []
    for kind in _KINDS:
        p99s = [f"{_p99(result['durations'].get(phase, {}).get(kind, [])):.0f}" for phase in (_ALONE, _ATTACKED)]
        failed = sum(sum(result["failures"].get(phase, {}).get(kind, {}).values()) for phase in (_ATTACKED, _AFTER))
        cells.append(" → ".join(p99s) + (f", {failed} failed" if failed else ""))
    print(f"| {name} | {' | '.join(cells)} | {ended} |", flush=True)


def _p99(durations: Sequence[float]) -> float:
    return sorted(durations)[min(len(durations) - 1, int(len(durations) * 0.99))] if durations else math.nan


def _summary(durations: Sequence[float]) -> str:
    if not durations:
        return "no calls"
    p50 = durations[len(durations) // 2]
    return f"{len(durations):4} calls p50 {p50:7.1f} p99 {_p99(durations):7.1f} max {durations[-1]:7.1f} ms"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=f"one of: {', '.join(ATTACKS)}; by default all")
    parser.add_argument("--seconds", type=float, default=8, help="seconds alone and under attack (default 8)")
    parser.add_argument("--nnhal", default="", metavar="COMMAND", help="command of another release")
    parser.add_argument("--tokens", action="store_true", help="give the client and the attacker an identity each")
    parser.add_argument("--table", action="store_true", help="print rows of Markdown")
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, _, options = _partition(given, "--")
    chosen = parser.parse_args(own)
    if unknown := set(chosen.names) - set(ATTACKS):
        parser.error(f"unknown attack {sorted(unknown)[0]!r}; expected one of: {', '.join(ATTACKS)}")
    for name in chosen.names or ATTACKS:
        measure(name, options, chosen)


def _partition(arguments: Sequence[str], separator: str) -> tuple[list[str], str, list[str]]:
    if separator not in arguments:
        return list(arguments), "", []
    position = list(arguments).index(separator)
    return list(arguments[:position]), separator, list(arguments[position + 1 :])


if __name__ == "__main__":
    main()
