"""Real models from the cache: the same answers, from files of about the model's own size."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

import nnhal.tflite
from nnhal.types import DTYPES, AnyArray, CacheState, ErrorStatus, Operand
from tests.driver.caching.pair import Pair
from tests.driver.caching.test_device import Devices, load, save
from tests.driver.one_operation import execute, sample
from tests.shared import SHARED

NAMES = ["kws_ref_model", "vww_96_float", "mobilenet_v1_0.25_128_quant", "deeplabv3_mnv2_dm05_pascal_quant"]
