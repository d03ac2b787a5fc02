"""Clients that use all features and are killed meanwhile: `python -m tests.end_to_end.support.killable_clients TARGET`.

Each line of standard input, STEP SEED SECONDS, runs one client. It opens its sessions and repeats a step, while another
thread takes random steps. It is killed SECONDS after the step began. The response is a line: "killed", or how the
client ended instead. Clients are forks of this process, which has imported all modules and never uses gRPC itself.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
from typing import NoReturn

from tests.end_to_end.support import full_client

STARTED = b"."
NAMES = ["connecting", *(step.__name__ for step in full_client.STEPS)]
"""Steps in which a client may be killed. In the first one it has no session yet."""


def run_client(target: str, name: str, seed: int, tell: int) -> None:
    """Run a client for ever. Write a byte to the descriptor `tell` when the step begins."""
    if name == "connecting":
        os.write(tell, STARTED)
    client = full_client.Client(target, seed)
    steps = {step.__name__: step for step in full_client.STEPS}
    threading.Thread(target=take_random_steps, args=(target, seed + 1)).start()
    if name != "connecting":
        os.write(tell, STARTED)
    while True:
        steps.get(name, full_client.executions)(client)


def take_random_steps(target: str, seed: int) -> None:
    """Take random steps for ever. A failing step ends the process, so that it is not reported as killed."""
    try:
        client, rng = full_client.Client(target, seed), random.Random(seed)
        while True:
            rng.choice(full_client.STEPS)(client)
    except BaseException:
        exit_with_traceback()


def exit_with_traceback() -> NoReturn:
    """End the process at once with the current traceback."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def run_and_kill(target: str, name: str, seed: int, seconds: float) -> str:
    """Fork a client, kill it, and return how it ended."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hear)
        try:
            run_client(target, name, seed, tell)
        except BaseException:
            exit_with_traceback()
    os.close(tell)
    born = os.read(hear, 1)
    os.close(hear)
    if born:
        time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) and born else f"ended by itself in {name}, seed {seed}: {status}"


def main() -> None:
    """Run clients until standard input ends."""
    for line in sys.stdin:
        name, seed, seconds = line.split()
        print(run_and_kill(sys.argv[1], name, int(seed), float(seconds)), flush=True)


if __name__ == "__main__":
    main()
