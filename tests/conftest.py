"""Set-up of all tests: services keep their files in temporary folders, not in those of the user.

Hypothesis generates the same examples in every run, unless NNHAL_FUZZ_EXAMPLES asks for long fuzzing.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.end_to_end.support.forking import forked_services

settings.register_profile(
    "nnhal",
    derandomize="NNHAL_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nnhal")


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: tests that count objects would visit thousands each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _private_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_embedded_services() -> Iterator[pytest.MonkeyPatch]:
    """Fork the embedded services of this process, see forked_services. Those of programs start as usual."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            patch.setattr("nnhal.embedded._start_process", forked_services.start_embedded)
        yield patch


@pytest.fixture
def unforked_embedded_services(_forked_embedded_services: pytest.MonkeyPatch) -> Iterator[None]:
    """Start embedded services as programs do, for tests that set variables which the interpreter reads."""
    _forked_embedded_services.undo()
    yield
    _forked_embedded_services.setattr("nnhal.embedded._start_process", forked_services.start_embedded)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape surrogates in captured logs: hostile backends raise them, and pytest-xdist cannot send them."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
