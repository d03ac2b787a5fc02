"""Round trips of compilation caching: save a model with cache files and a token, retrieve it, and check both."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.caching.files import CacheFolder, CacheHandles
from nnhal_tools.conformance.caching.models import NUMBER_KINDS, mobilenet
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, NotServiceSpecific, Skipped, attribute_failures
from nnhal_tools.conformance.device.calls import collect_preparation
from nnhal_tools.conformance.device.options import MEDIUM, PreparationOptions, RunOptions
from nnhal_tools.conformance.device.results import AGREEMENT, CallOutcome, PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import PATHS
from nnhal_tools.conformance.paths.path import check_steps
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outputs import check_outputs, check_shapes, check_timing
from nnhal_tools.conformance.vectors.requests import case_request

TOKEN = bytes(32)

GENERAL_PATHS = ("SYNC", "SYNC-C", "SYNC-R", "BURST", "BURST-C")
"""Paths of the kind GENERAL."""

WRONG_FILES = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)
"""Statuses that a device may return for wrong files."""


@dataclass(frozen=True)
class RetrievedModel:
    """Outcome of prepareModelFromCache: the error of the launch or the outcome in the callback, and the model."""

    outcome: CallOutcome
    model: bytes = b""

    @property
    def is_refused(self) -> bool:
        """True for GENERAL_FAILURE without a model."""
        return self.outcome.status == ErrorStatus.GENERAL_FAILURE and not self.model

    @property
    def agrees(self) -> bool:
        """True if there is a model if and only if the status is NONE."""
        return (self.outcome.status == ErrorStatus.NONE) == bool(self.model)

    def __str__(self) -> str:
        return f"{self.outcome}{', a model' if self.model else ''}"


def files_needed(target: Target, recorder: CheckRecorder) -> tuple[int, int]:
    """Return the numbers of model files and data files that the device needs.

    Raises:
        CheckFailed: CACHE-01 to CACHE-03.
    """
    outcome, needed = target.call("Device.GetNumberOfCacheFilesNeeded")
    if needed is None:
        raise CheckFailed("CACHE-01", "getNumberOfCacheFilesNeeded", "NONE", outcome)
    recorder.mark("CACHE-01")
    for id_, kind, count in (
        ("CACHE-02", "numModelCache", needed.num_model_cache),
        ("CACHE-03", "numDataCache", needed.num_data_cache),
    ):
        recorder.expect(count >= 0, kind, "at least 0", count, check=id_)
    return needed.num_model_cache, needed.num_data_cache


def file_cache(token: bytes, files: CacheHandles) -> types_pb2.CompilationCache:
    """Return the cache arguments of the HAL: files and a token."""
    return types_pb2.CompilationCache(model_cache=files.model, data_cache=files.data, token=token)


def stored_cache(token: bytes) -> types_pb2.CompilationCache:
    """Return the cache arguments for the store of the service."""
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token)


def prepare_and_save(
    target: Target, model: types_pb2.Model, cache: types_pb2.CompilationCache, priority: int = MEDIUM
) -> PreparationOutcome:
    """Call IDevice.prepareModel with cache arguments, and wait for the end of the stream."""
    return collect_preparation(target.launch_preparation(model, PreparationOptions(priority=priority), cache))


def prepare_from_cache(target: Target, cache: types_pb2.CompilationCache) -> PreparationOutcome:
    """Call IDevice.prepareModelFromCache, and wait for the end of the stream."""
    return collect_preparation(target.start("Device.PrepareModelFromCache", cache=cache))


class CacheRoundTrip:
    """Model with empty cache files, to be saved and retrieved. Use it as a context manager: it releases everything.

    `model_files` and `data_files` are the names of as many files as the device needs, and `spare` that of one more.

    Raises:
        CheckFailed: CACHE-01 to CACHE-04.
        Skipped: X5.
    """

    def __init__(self, target: Target, recorder: CheckRecorder, case: Case) -> None:
        self.target, self.recorder, self.case = target, recorder, case
        models, datas = files_needed(target, recorder)
        self.model_files = [f"model-{i}" for i in range(models)]
        self.data_files = [f"data-{i}" for i in range(datas)]
        self.spare = "spare"
        self.needs_files = bool(models or datas)
        self.model = target.upload_large_pools(case.model())
        self.folder = CacheFolder(target)
        self._models: list[bytes] = []
        self._require_supported()

    def _require_supported(self) -> None:
        outcome, supported = self.target.supported_operations(self.model)
        count = len(self.model.main.operations)
        right = outcome.status == ErrorStatus.NONE and len(supported) == count
        got = f"{outcome} with {len(supported)} values"
        self.recorder.expect(right, "getSupportedOperations", f"NONE with {count} values", got, check="CACHE-04")
        if not all(supported):
            raise Skipped("X5", f"{supported.count(False)} of {count} operations are not supported")

    def __enter__(self) -> "CacheRoundTrip":
        return self

    def __exit__(self, *_: object) -> None:
        self.release_models()
        self.target.release_pools(self.model.pools)
        self.folder.__exit__()

    def release_models(self) -> None:
        """Release the models that were prepared so far."""
        if self._models:
            self.target.release(*self._models)
            self._models.clear()

    def require_caching(self) -> None:
        """Raise Skipped for X4 if the device caches nothing."""
        if not self.needs_files:
            raise Skipped("X4", "the device needs no cache files")

    @contextmanager
    def open_files(self) -> Iterator[CacheHandles]:
        """Open the right files within the context."""
        with self.folder.open_files(self.model_files, self.data_files) as handles:
            yield handles

    def save(self, files: CacheHandles, token: bytes = TOKEN, situation: str = "") -> bytes:
        """Prepare and save the model (CACHE-05, -06), and return its handle. `situation`: added to the stimulus."""
        stimulus = f"prepareModel that saves{situation and ', ' + situation}"
        try:
            preparation = prepare_and_save(self.target, self.model, file_cache(token, files))
        except NotServiceSpecific as error:
            raise CheckFailed("CACHE-05", stimulus, "a successful launch", error) from None
        succeeded = preparation.launch.status == ErrorStatus.NONE
        self.recorder.expect(succeeded, stimulus, "a successful launch", preparation.launch, check="CACHE-05")
        succeeded = preparation.callback.status == ErrorStatus.NONE and bool(preparation.model)
        got = f"{preparation.callback}, {'a' if preparation.model else 'no'} model"
        self.recorder.expect(succeeded, stimulus, "NONE and a model in the callback", got, check="CACHE-06")
        self._models.append(preparation.model)
        return preparation.model

    def save_to_files(self, token: bytes = TOKEN) -> None:
        """Open the right files, and prepare and save the model."""
        with self.open_files() as files:
            self.save(files, token)

    def retrieve(self, files: CacheHandles, token: bytes = TOKEN, *, fallback: bool = False) -> RetrievedModel:
        """Call prepareModelFromCache (CACHE-07).

        `fallback`: call prepareModel with the same files after a launch that failed with GENERAL_FAILURE.
        """
        self.recorder.mark("CACHE-07")
        try:
            preparation = prepare_from_cache(self.target, file_cache(token, files))
        except NotServiceSpecific as error:
            stimulus, expected = "prepareModelFromCache", "OK or a service-specific error"
            raise CheckFailed("CACHE-07", stimulus, expected, error) from None
        if fallback and self.needs_files and preparation.launch.status == ErrorStatus.GENERAL_FAILURE:
            preparation = prepare_and_save(self.target, self.model, file_cache(token, files))
        if preparation.launch.status != ErrorStatus.NONE:
            return RetrievedModel(preparation.launch)
        if preparation.model:
            self._models.append(preparation.model)
        return RetrievedModel(preparation.callback, preparation.model)

    def retrieve_from_files(self, token: bytes = TOKEN) -> RetrievedModel:
        """Open the right files and retrieve the model, without fallback."""
        with self.open_files() as files:
            return self.retrieve(files, token)

    def check_execution(self, check_: str, model: bytes, origin: str, paths: Sequence[str] = GENERAL_PATHS) -> None:
        """Execute a model on paths, with and without timing, and check the results. `origin`: of the model, in words.

        A failure is one of `check_` and of the individual check.
        """
        self.recorder.mark(check_)
        with case_request(self.target, self.case) as request:
            for path in paths:
                for measure in (False, True):
                    execution = PATHS[path](self.target, model, request, RunOptions(measure))
                    with attribute_failures(check_, note=f" of {origin}"):
                        check_steps(self.recorder, execution)
                        self.recorder.expect_status(execution.outcome, f"{path} of {origin}", check=check_)
                        check_timing(self.recorder, execution, measure)
                        check_shapes(self.recorder, self.case, execution)
                        check_outputs(self.recorder, self.case, execution)

    def expect_unusable(self, files: CacheHandles, defect: str) -> None:
        """Check that wrong files are rejected, and that a preparation with them still works (CACHE-08, CACHE-09)."""
        retrieved = self.retrieve(files)
        rejected = retrieved.outcome.status in WRONG_FILES and not retrieved.model
        stimulus, expected = f"prepareModelFromCache, {defect}", "INVALID_ARGUMENT or GENERAL_FAILURE, no model"
        self.recorder.expect(rejected, stimulus, expected, retrieved, check="CACHE-08")
        if retrieved.outcome.status == ErrorStatus.GENERAL_FAILURE:
            again = self.retrieve(files, fallback=True)
            holds = again.is_refused or (again.outcome.status == ErrorStatus.NONE and bool(again.model))
            stimulus = f"prepareModelFromCache with fallback, {defect}"
            self.recorder.expect(holds, stimulus, "NONE or GENERAL_FAILURE", again, check="CACHE-09")
            if again.model:
                self.check_execution("CACHE-09", again.model, "the model that the fallback prepared")

    def expect_agreement(self, check_: str, retrieved: RetrievedModel, stimulus: str) -> None:
        """Check that there is a model if and only if the status is NONE."""
        self.recorder.expect(retrieved.agrees, stimulus, AGREEMENT, retrieved, check=check_)

    def expect_refused(self, check_: str, retrieved: RetrievedModel, defect: str) -> None:
        """Check that the status is GENERAL_FAILURE and that there is no model."""
        stimulus = f"prepareModelFromCache, {defect}"
        self.recorder.expect(retrieved.is_refused, stimulus, "GENERAL_FAILURE and no model", retrieved, check=check_)


RoundTripBody = Callable[[CacheRoundTrip], None]


def round_trip_check(
    id_: str,
    title: str = "",
    *,
    models: Callable[[str], Case] = mobilenet,
    kinds: Sequence[str] = NUMBER_KINDS,
    saved: bool = False,
) -> Callable[[RoundTripBody], RoundTripBody]:
    """Register a check for each kind of numbers, on a round trip of its own.

    `models`: returns the model of a kind. `saved`: the model is saved before, and devices that cache nothing are
    skipped.
    """

    def register(body: RoundTripBody) -> RoundTripBody:
        for kind in kinds:

            def run(target: Target, recorder: CheckRecorder, kind: str = kind) -> None:
                with CacheRoundTrip(target, recorder, models(kind)) as trip:
                    if saved:
                        trip.require_caching()
                        trip.save_to_files()
                    body(trip)

            check(id_, f"{title} {kind}".lstrip())(run)
        return body

    return register
