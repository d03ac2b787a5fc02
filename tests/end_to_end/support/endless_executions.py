"""Executions that occupy all slots of a service for a long time."""

import os
from typing import Any

import numpy as np

import nnhal
from nnhal.types import Priority
from tests.driver.control_flow_models import counts, less_than, loop

FOREVER = loop(less_than(), counts())
"""Model that counts up to its second input. For infinity it only ends by its loop timeout."""
ENDLESS = [np.zeros(1, np.float32), np.full(1, np.inf, np.float32)]


def start_endless_executions(device: nnhal.Device) -> list[Any]:
    """Occupy all slots for 20 s: start executions that only end by the loop timeout of 2 s, and return their owners."""
    endless = device.prepare(FOREVER, priority=Priority.HIGH).result()
    return [endless, *(endless.execute_fenced(ENDLESS) for _ in range(10 * (os.cpu_count() or 1)))]
