"""One trial of caching: a model, its cache files and token, and what must hold whenever it is saved and retrieved."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.caching.files import CacheFolder, Opened
from tools.conformance.caching.models import KINDS
from tools.conformance.check import CheckFailed, Judge, NotServiceSpecific, Skipped
from tools.conformance.outputs import check_outputs, check_shapes, check_timing
from tools.conformance.paths import PATHS, judge_steps
from tools.conformance.registry import check
from tools.conformance.request import requesting
from tools.conformance.target import (
    FAST_SINGLE_ANSWER,
    MEDIUM,
    WATCHDOG_S,
    Answer,
    Prepared,
    Run,
    Target,
    called,
    collect,
)
from tools.conformance.vectors import Case

TOKEN = bytes(32)

GENERAL_PATHS = ("SYNC", "SYNC-C", "SYNC-R", "BURST", "BURST-C")
"""Those of the kind GENERAL."""

WRONG_FILES = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)


@dataclass(frozen=True)
class Retrieved:
    """How prepareModelFromCache ended: the error of the launch, or what the callback says; and the model."""

    answer: Answer
    model: bytes = b""

    @property
    def is_refused(self) -> bool:
        """Exactly GENERAL_FAILURE, and no model."""
        return self.answer.status == ErrorStatus.GENERAL_FAILURE and not self.model

    def __str__(self) -> str:
        return f"{self.answer}{', a model' if self.model else ''}"


def files_needed(target: Target, judge: Judge) -> tuple[int, int]:
    """CACHE-01 to CACHE-03: model files and data files."""
    answer, needed = called(target.device.GetNumberOfCacheFilesNeeded, device_pb2.DeviceRequest(device=target.name))
    if needed is None:
        raise CheckFailed("CACHE-01", "getNumberOfCacheFilesNeeded", "NONE", answer)
    judge.checks["CACHE-01"] = None
    for id_, kind, count in (
        ("CACHE-02", "numModelCache", needed.num_model_cache),
        ("CACHE-03", "numDataCache", needed.num_data_cache),
    ):
        judge.expect(id_, count >= 0, kind, "at least 0", count)
    return needed.num_model_cache, needed.num_data_cache


def in_files(token: bytes, files: Opened) -> types_pb2.CompilationCache:
    """The cache arguments of the HAL."""
    return types_pb2.CompilationCache(model_cache=files.model, data_cache=files.data, token=token)


def in_store(token: bytes) -> types_pb2.CompilationCache:
    """A cache that the service keeps."""
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token)


def prepare_into(
    target: Target, model: types_pb2.Model, cache: types_pb2.CompilationCache, priority: int = MEDIUM
) -> Prepared:
    """IDevice.prepareModel that saves, to the end of its callback."""
    request = device_pb2.PrepareModelRequest(
        session=target.session,
        device=target.name,
        model=model,
        preference=FAST_SINGLE_ANSWER,  # type: ignore[arg-type]
        priority=priority,  # type: ignore[arg-type]
        cache=cache,
    )
    return collect(target.device.PrepareModel(request, timeout=WATCHDOG_S))


def prepare_from(target: Target, cache: types_pb2.CompilationCache) -> Prepared:
    """IDevice.prepareModelFromCache, to the end of its callback."""
    request = device_pb2.PrepareModelFromCacheRequest(session=target.session, device=target.name, cache=cache)
    return collect(target.device.PrepareModelFromCache(request, timeout=WATCHDOG_S))


class Trial:
    """A model and files for it, all of them empty. Use it as a context manager: it drops what it made.

    Attributes:
        model_files, data_files: names, as many as the device needs.
        spare: name of one file more.
        caching: whether the device needs any files.

    Raises:
        CheckFailed: CACHE-01 to CACHE-04.
        Skipped: X5.
    """

    def __init__(self, target: Target, judge: Judge, case: Case) -> None:
        self.target, self.judge, self.case = target, judge, case
        models, datas = files_needed(target, judge)
        self.model_files = [f"model-{i}" for i in range(models)]
        self.data_files = [f"data-{i}" for i in range(datas)]
        self.spare = "spare"
        self.caching = bool(models or datas)
        self.model = target.own_pools(case.model())
        self.folder = CacheFolder(target)
        self._models: list[bytes] = []
        self._expect_supported()

    def _expect_supported(self) -> None:
        answer, supported = self.target.supported_operations(self.model)
        count = len(self.model.main.operations)
        right = answer.status == ErrorStatus.NONE and len(supported) == count
        got = f"{answer} with {len(supported)} answers"
        self.judge.expect("CACHE-04", right, "getSupportedOperations", f"{count} answers", got)
        if not all(supported):
            raise Skipped("X5", f"not fully supported: {supported.count(False)} of {count} operations")

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        self.forget_models()
        self.target.release_pools(self.model.pools)
        self.folder.__exit__()

    def forget_models(self) -> None:
        """Releases the models that it prepared so far."""
        if self._models:
            self.target.release(*self._models)
            self._models.clear()

    def demand_caching(self) -> None:
        """Ends what makes sense only where something is cached.

        Raises:
            Skipped: X4.
        """
        if not self.caching:
            raise Skipped("X4", "the device needs no cache files")

    @contextmanager
    def files(self) -> Iterator[Opened]:
        """The right files, opened anew."""
        with self.folder.opened(self.model_files, self.data_files) as opened:
            yield opened

    def save(self, files: Opened, token: bytes = TOKEN, what: str = "") -> bytes:
        """Prepares with files and token (CACHE-05, CACHE-06); gives the model."""
        stimulus = f"prepareModel that saves{what and ', ' + what}"
        try:
            prepared = prepare_into(self.target, self.model, in_files(token, files))
        except NotServiceSpecific as error:
            raise CheckFailed("CACHE-05", stimulus, "a launch that is OK", error) from None
        launch = prepared.launch
        self.judge.expect("CACHE-05", launch.status == ErrorStatus.NONE, stimulus, "a launch that is OK", launch)
        fine = prepared.callback.status == ErrorStatus.NONE and bool(prepared.model)
        got = f"{prepared.callback}, {'a' if prepared.model else 'no'} model"
        self.judge.expect("CACHE-06", fine, stimulus, "NONE and a model in the callback", got)
        self._models.append(prepared.model)
        return prepared.model

    def save_right(self, token: bytes = TOKEN) -> None:
        """Saves into the right files, opened anew."""
        with self.files() as files:
            self.save(files, token)

    def retrieve(self, files: Opened, token: bytes = TOKEN, *, fallback: bool = False) -> Retrieved:
        """prepareModelFromCache (CACHE-07).

        Args:
            fallback: a launch that fails with GENERAL_FAILURE is followed by prepareModel into the same files.
        """
        self.judge.checks["CACHE-07"] = None
        try:
            prepared = prepare_from(self.target, in_files(token, files))
        except NotServiceSpecific as error:
            stimulus, expected = "prepareModelFromCache", "OK or a service-specific error"
            raise CheckFailed("CACHE-07", stimulus, expected, error) from None
        if fallback and self.caching and prepared.launch.status == ErrorStatus.GENERAL_FAILURE:
            prepared = prepare_into(self.target, self.model, in_files(token, files))
        if prepared.launch.status != ErrorStatus.NONE:
            return Retrieved(prepared.launch)
        if prepared.model:
            self._models.append(prepared.model)
        return Retrieved(prepared.callback, prepared.model)

    def retrieve_right(self, token: bytes = TOKEN) -> Retrieved:
        """Retrieves from the right files, opened anew; without fallback."""
        with self.files() as files:
            return self.retrieve(files, token)

    def check_execution(self, check_: str, model: bytes, what: str, paths: Sequence[str] = GENERAL_PATHS) -> None:
        """The kind GENERAL, with and without timing."""
        self.judge.checks[check_] = None
        with requesting(self.target, self.case) as request:
            for path in paths:
                for measure in (False, True):
                    executed = PATHS[path](self.target, model, request, Run(measure))
                    with counted_against(check_, what):
                        judge_steps(self.judge, executed)
                    fine = executed.answer.status == ErrorStatus.NONE
                    self.judge.expect(check_, fine, f"{path} of {what}", "NONE", executed.answer)
                    with counted_against(check_, what):
                        check_timing(self.judge, executed, measure)
                        check_shapes(self.judge, self.case, executed)
                        check_outputs(self.judge, self.case, executed)

    def verify_bad(self, files: Opened, what: str) -> None:
        """CACHE-08 and CACHE-09: files that are wrong are refused, and preparing with them still works."""
        retrieved = self.retrieve(files)
        refused = retrieved.answer.status in WRONG_FILES and not retrieved.model
        stimulus, expected = f"prepareModelFromCache, {what}", "INVALID_ARGUMENT or GENERAL_FAILURE, no model"
        self.judge.expect("CACHE-08", refused, stimulus, expected, retrieved)
        if retrieved.answer.status == ErrorStatus.GENERAL_FAILURE:
            again = self.retrieve(files, fallback=True)
            fine = again.is_refused or (again.answer.status == ErrorStatus.NONE and bool(again.model))
            self.judge.expect("CACHE-09", fine, f"the same with fallback, {what}", "NONE or GENERAL_FAILURE", again)
            if again.model:
                self.check_execution("CACHE-09", again.model, "what the fallback prepared")

    def expect_refused(self, check_: str, retrieved: Retrieved, what: str) -> None:
        """Exactly GENERAL_FAILURE and no model."""
        self.judge.expect(
            check_, retrieved.is_refused, f"prepareModelFromCache, {what}", "GENERAL_FAILURE and no model", retrieved
        )


@contextmanager
def counted_against(check_: str, what: str = "") -> Iterator[None]:
    """What fails within counts against this id, too."""
    try:
        yield
    except CheckFailed as failed:
        if failed.check == check_:
            raise
        stimulus = f"{failed.stimulus} of {what}" if what else failed.stimulus
        also = tuple(sorted({*failed.also, check_} - {failed.check}))
        raise CheckFailed(failed.check, stimulus, failed.expected, failed.got, also) from None


Body = Callable[[Trial], None]


def on_models(
    id_: str, what: str = "", *, models: Callable[[str], Case], kinds: Sequence[str] = KINDS
) -> Callable[[Body], Body]:
    """Registers a check once for each kind of numbers, on a trial of its own."""

    def register(body: Body) -> Body:
        for kind in kinds:
            check(id_, f"{what} {kind}".lstrip())(_check(models, kind, body))
        return body

    return register


def _check(models: Callable[[str], Case], kind: str, body: Body) -> Callable[[Target, Judge], None]:
    def run(target: Target, judge: Judge) -> None:
        with Trial(target, judge, models(kind)) as trial:
            body(trial)

    return run
