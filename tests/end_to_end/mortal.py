"""Clients that use everything and are killed while they do: `python -m tests.end_to_end.mortal TARGET`.

Each line of standard input, STEP SEED SECONDS, is one life: a client opens its sessions, then repeats a step while
another thread takes steps at random, and is killed some time after the step began. The answer is a line: "killed", or
what else became of it. Lives are forks of this process, which has loaded all that they need and never used gRPC itself.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
from typing import NoReturn

from tests.end_to_end import everything

BORN = b"."
NAMES = ["connecting", *(step.__name__ for step in everything.STEPS)]
"""Steps in which a client may be killed. In the first it has no sessions yet."""


def live(target: str, name: str, seed: int, tell: int) -> None:
    """A client's life. Writes a byte to `tell` when the step begins."""
    if name == "connecting":
        os.write(tell, BORN)
    client = everything.Client(target, seed)
    steps = {step.__name__: step for step in everything.STEPS}
    threading.Thread(target=wander, args=(target, seed + 1)).start()
    if name != "connecting":
        os.write(tell, BORN)
    while True:
        steps.get(name, everything.executions)(client)


def wander(target: str, seed: int) -> None:
    """Takes steps at random. One that fails ends the process: the answer must not be "killed"."""
    try:
        client, rng = everything.Client(target, seed), random.Random(seed)
        while True:
            rng.choice(everything.STEPS)(client)
    except BaseException:
        die()


def die() -> NoReturn:
    """Ends the process at once, and says why."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def one_life(target: str, name: str, seed: int, seconds: float) -> str:
    """Forks a client and kills it."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hear)
        try:
            live(target, name, seed, tell)
        except BaseException:
            die()
    os.close(tell)
    born = os.read(hear, 1)
    os.close(hear)
    if born:
        time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) and born else f"ended by itself in {name}, seed {seed}: {status}"


def main() -> None:
    """Until standard input ends."""
    for line in sys.stdin:
        name, seed, seconds = line.split()
        print(one_life(sys.argv[1], name, int(seed), float(seconds)), flush=True)


if __name__ == "__main__":
    main()
