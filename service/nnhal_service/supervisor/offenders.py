"""Offenders: clients whose work had to be ended, or has crashed a worker. For a while, they have workers of their own.

The supervisor writes the table, in memory that it shares with all workers. These read it when a client opens a session.
"""

import struct
import time
from collections.abc import Callable

from nnhal_service.identity.identity import CLIENT_BYTES, is_host

CAPACITY = 64
"""Number of offenders. A further one takes the place of the one whose probation ends first."""
PROBATION_S = 600.0
"""Seconds after which an offence is forgotten."""
_FIRST_WAIT_S, _MAX_WAIT_S = 1.0, 60.0
"""Seconds that an identity waits after its second offence, and after many. Then it gets another worker."""
_ENTRY = struct.Struct(f"<{CLIENT_BYTES}sddI4x")
"""Client, ends of probation and wait on CLOCK_MONOTONIC, and number of offences."""
TABLE_BYTES = CAPACITY * _ENTRY.size


class OffenderTable:
    """The table. One process writes it; any number may read it meanwhile.

    Args:
        memory: `TABLE_BYTES` bytes, zeroed.
    """

    def __init__(self, memory: memoryview, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._clock = clock

    def add(self, client: bytes) -> int:
        """Add an offence of a client, and return the number of its offences.

        An identity waits longer after each one. Clients of a host do not: others there may be innocent.
        """
        now = self._clock()
        entries = {self._read(number)[0]: number for number in reversed(range(CAPACITY))}
        number = entries.get(client, min(range(CAPACITY), key=lambda each: self._read(each)[1]))
        known, until, _, offences = self._read(number)
        offences = offences + 1 if known == client and now < until else 1
        wait_s = 0.0 if offences == 1 or is_host(client) else min(_FIRST_WAIT_S * 2.0 ** (offences - 2), _MAX_WAIT_S)
        _ENTRY.pack_into(self._memory, number * _ENTRY.size, client, now + PROBATION_S, now + wait_s, offences)
        return offences

    def wait_s(self, client: bytes) -> float | None:
        """Return the seconds until an offender may have a worker; None if the client is not on probation."""
        now = self._clock()
        for number in range(CAPACITY):
            known, until, waits_until, _ = self._read(number)
            if known == client and now < until:
                return max(0.0, waits_until - now)
        return None

    def _read(self, number: int) -> tuple[bytes, float, float, int]:
        client, until, waits_until, offences = _ENTRY.unpack_from(self._memory, number * _ENTRY.size)
        return client, until, waits_until, offences
