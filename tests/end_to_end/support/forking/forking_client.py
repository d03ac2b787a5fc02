"""Program that connects to a service, forks, and uses its device in both processes. It prints what the child saw.

Arguments: the address, or "" for an embedded service; the transport; what the child does in the end.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import nnhal
from nnhal_tools.demo import digits

_ROUNDS = 40
_IMAGES = digits.load_images()[0][:_ROUNDS].astype(np.float32)[..., np.newaxis]


def classify(execute: Callable[..., Any], number: int) -> int:
    """Return the digit that a model sees in an image."""
    return int(execute([_IMAGES[number : number + 1]])[0].argmax())


def error_of(action: Callable[[], object]) -> str:
    """Return the message of the error of an action."""
    try:
        action()
    except nnhal.errors.SessionLostError as error:
        return str(error)
    return "no error"


def main() -> None:
    """Fork, and check that the parent does not notice what the child does."""
    address, transport, end = sys.argv[1:]
    signal.alarm(60)
    device: Any = nnhal.connect(address or None, transport=transport)  # type: ignore[arg-type]
    model = device.prepare(digits.MODEL).result()
    expected = [classify(model.execute, number) for number in range(_ROUNDS)]
    burst = model.burst()
    submitted = [burst.submit([_IMAGES[number : number + 1]]) for number in range(3)]
    if (child := os.fork()) == 0:
        signal.alarm(60)  # the child of a fork has none
        calls = [
            lambda: classify(model.execute, 0),
            lambda: classify(burst.execute, 0),
            lambda: device.capabilities,
            model.burst,
        ]
        print({error_of(call) for call in calls}, flush=True)
        if end == "close":
            burst.close()
            model.close()
            device.close()
        elif end == "collect":
            del device, model, burst, submitted, calls
            gc.collect()
        elif end == "connect":
            with nnhal.connect(address or None, transport=transport) as own:  # type: ignore[arg-type]
                assert classify(own.prepare(digits.MODEL).result().execute, 1) == expected[1]
        return
    for _ in range(5):
        assert [classify(model.execute, number) for number in range(_ROUNDS)] == expected
        assert [classify(burst.execute, number) for number in range(_ROUNDS)] == expected
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [classify(model.execute, number) for number in range(_ROUNDS)] == expected
    assert [classify(burst.execute, number) for number in range(_ROUNDS)] == expected
    assert [int(future.result()[0].argmax()) for future in submitted] == expected[:3]
    device.close()
    print("the parent is done")


if __name__ == "__main__":
    main()
