"""Executions that occupy all slots of a service for a long time."""

from typing import Any

import numpy as np

import nnhal
from nnhal.cpu import available_cpus
from nnhal.types import Priority
from tests.driver.control_flow_models import counts, less_than, loop

FOREVER = loop(less_than(), counts())
"""Model that counts up to its second input. For infinity it only ends by its loop timeout."""
ENDLESS = [np.zeros(1, np.float32), np.full(1, np.inf, np.float32)]
MAX_EXECUTIONS = 250
"""The tests limit the executions of a session to 300."""


def start_endless_executions(device: nnhal.Device) -> list[Any]:
    """Occupy all slots for 40 s: start executions that only end by the loop timeout of 2 s, and return their owners."""
    endless = device.prepare(FOREVER, priority=Priority.HIGH).result()
    count = min(20 * available_cpus(), MAX_EXECUTIONS)
    return [endless, *(endless.execute_fenced(ENDLESS) for _ in range(count))]
