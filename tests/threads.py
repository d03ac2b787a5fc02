"""Many threads at once, of which none may fail."""

import threading
from collections.abc import Callable

END_S = 120


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Calls work(0), work(1), ..., each in a thread of its own, and waits for all of them; raises what one raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(END_S)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "some did not end"
