"""How calls end: what is told, and what is let go."""

import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
import numpy as np
import pytest

from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.types import ErrorStatus
from service.rpc import answering, fail, internal


class Context:
    """As much of a grpc.ServicerContext as an ending call needs."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailers: Any = ()

    def is_active(self) -> bool:
        return True

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailers: Any) -> None:
        self.trailers = trailers

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Exception


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps what is logged, with its traceback
    yield
    logging.disable(logging.NOTSET)
    gc.enable()


@pytest.mark.parametrize("error", [invalid_argument("x"), ValueError("x"), MemoryError("x")])
def test_a_failed_call_lets_go_at_once_what_it_had_in_hand(without_collector: None, error: Exception) -> None:
    """An error that is kept by a frame of its own traceback would keep gigabytes until the collector runs."""
    seen: list[weakref.ref[Any]] = []

    class Servicer:
        @answering
        def Method(self, request: object, context: Any) -> NoReturn:
            large = np.zeros(1000)
            seen.append(weakref.ref(large))
            raise type(error)(*error.args)

    with pytest.raises(Exception, match=r"^$") as caught:
        Servicer().Method(None, Context())
    del caught
    assert seen[0]() is None


def test_short_memory_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = internal(MemoryError("Unable to allocate 7 GiB"))
    assert error.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert error.reason == "not enough memory for the call: Unable to allocate 7 GiB"
    assert caplog.text == ""
    assert internal(MemoryError()).reason.endswith("none is left")


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600", "\0"])
def test_trailers_stay_below_8_kb(letter: str) -> None:
    """gRPC spells a byte of its own message with up to three, and the details in base64."""
    context = Context()
    error: HalError = general_failure(letter * 5000)
    fail(context, error)  # type: ignore[arg-type]
    ((_, raw),) = context.trailers
    assert len(raw) * 4 / 3 + 3 * len(context.details.encode()) < 8000
    assert error.reason.encode() in raw
