"""Errors of calls: their details, and that a failed call frees its memory."""

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
from nnhal_service.grpc_support.errors import internal_error, map_errors, map_stream_errors, set_error
from nnhal_service.request_id import current_id, request_id


class Context:
    """Takes the place of a grpc.ServicerContext of a failing call."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailers: Any = ()

    def is_active(self) -> bool:
        return True

    def invocation_metadata(self) -> tuple[()]:
        return ()

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
def test_failed_call_frees_its_memory_at_once(without_collector: None, error: Exception) -> None:
    """An exception that is referenced by a frame of its own traceback would keep gigabytes until the collector runs."""
    seen: list[weakref.ref[Any]] = []

    def method(request: object, context: Any) -> NoReturn:
        large = np.zeros(1000)
        seen.append(weakref.ref(large))
        raise type(error)(*error.args)

    with pytest.raises(Exception, match=r"^$") as caught:
        map_errors(method)(None, Context())
    del caught
    assert seen[0]() is None


def test_failed_call_that_logs_frees_its_memory_at_once(without_collector: None) -> None:
    """A line that is logged reads variables of the function that handles the call; the frame keeps what it has read."""
    seen: list[weakref.ref[Any]] = []

    def method(request: object, context: Any) -> NoReturn:
        large = np.zeros(1000)
        seen.append(weakref.ref(large))
        assert current_id() == request_id(context)
        raise ValueError("x")

    with pytest.raises(Exception, match=r"^$") as caught:
        map_errors(method)(None, Context())
    del caught
    assert seen[0]() is None


def test_memory_error_is_not_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = internal_error(MemoryError("Unable to allocate 7 GiB"))
    assert error.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert error.reason == "not enough memory for the call: Unable to allocate 7 GiB"
    assert caplog.text == ""
    assert internal_error(MemoryError()).reason.endswith("none is left")


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600", "\0"])
def test_trailers_stay_below_8_kb(letter: str) -> None:
    """The status message takes up to three bytes for each byte, and the details are in base64."""
    context = Context()
    error: HalError = general_failure(letter * 5000)
    set_error(context, error)  # type: ignore[arg-type]
    ((_, raw),) = context.trailers
    assert len(raw) * 4 / 3 + 3 * len(context.details.encode()) < 8000
    assert error.reason.encode() in raw


RAISED = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("\udcff"), HalError(0, "x"), HalError(3, "x")]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_method_raises_the_call_has_an_answer(error: BaseException) -> None:
    def method(request: object, context: Any) -> NoReturn:
        raise error

    context = Context()
    with pytest.raises(Exception, match=r"^$"):  # of abort
        map_errors(method)(None, context)
    assert (context.code, bool(context.trailers)) == (grpc.StatusCode.INTERNAL, True)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_stream_raises_the_call_has_an_answer(error: BaseException) -> None:
    def method(request: object, context: Any) -> Iterator[int]:
        yield 1
        raise error

    context = Context()
    responses = map_stream_errors(method)(None, context)
    assert next(responses) == 1
    with pytest.raises(Exception, match=r"^$"):  # of abort
        next(responses)
    assert (context.code, bool(context.trailers)) == (grpc.StatusCode.INTERNAL, True)


def test_stream_of_a_lost_client_ends_without_an_error() -> None:
    """GRPC closes it, and its method frees what it has."""
    closed = []

    def method(request: object, context: Any) -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    context = Context()
    responses = map_stream_errors(method)(None, context)
    next(responses)
    responses.close()
    assert (closed, context.code) == ([True], None)
