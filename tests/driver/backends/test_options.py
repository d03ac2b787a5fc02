"""Options of backends: their types and defaults, rejected and unknown ones, and their part in the identity."""

from collections.abc import Callable

import pytest

from nnhal_driver.backends.identity import BackendIdentity
from nnhal_driver.backends.memory import MemoryMode
from nnhal_driver.backends.options import (
    BackendOptions,
    OptionError,
    PowerMode,
    Precision,
    call_factory,
    checked_creation,
    identity_with_options,
    takes_options,
)


def test_values_have_types() -> None:
    values = {
        **{"threads": "4", "precision": "low", "power": "high", "memory": "limit"},
        **{"kernel": "wide", "tile": "-8", "scale": "0.5", "trace": "true"},
    }
    options = BackendOptions(values)
    assert (options.threads, options.precision, options.power) == (4, Precision.LOW, PowerMode.HIGH)
    assert options.memory is MemoryMode.LIMIT
    assert options.text("kernel", choices=("wide", "narrow")) == "wide"
    assert (options.integer("tile"), options.number("scale"), options.flag("trace")) == (-8, 0.5, True)


def test_defaults() -> None:
    options = BackendOptions({})
    assert (options.threads, options.precision, options.power) == (0, Precision.NORMAL, PowerMode.NORMAL)
    assert options.memory is MemoryMode.NORMAL
    assert (options.text("a", "x"), options.integer("b", 3), options.number("c", 1.5)) == ("x", 3, 1.5)
    assert options.flag("d", True) and not options.flag("e")


REJECTED: dict[str, tuple[str, Callable[[BackendOptions], object], str]] = {
    "threads": ("-1", lambda options: options.threads, "expected a whole number from 0 on"),
    "precision": ("best", lambda options: options.precision, "expected normal, high, low"),
    "memory": ("low", lambda options: options.memory, "expected normal, limit"),
    "kernel": ("flat", lambda options: options.text("kernel", choices=("wide", "narrow")), "expected wide, narrow"),
    "tile": ("4.5", lambda options: options.integer("tile"), "expected a whole number"),
    "scale": ("nan", lambda options: options.number("scale"), "expected a number"),
    "trace": ("yes", lambda options: options.flag("trace"), "expected true or false"),
    "core": ("7", lambda options: options.reject("core", "there are 4 cores"), "there are 4 cores"),
}


@pytest.mark.parametrize("key", REJECTED)
def test_invalid_values_are_rejected_by_name(key: str) -> None:
    value, read, reason = REJECTED[key]
    options = BackendOptions({key: value})
    with pytest.raises(OptionError) as caught:
        checked_creation("Npu", lambda: read(options), options)
    assert str(caught.value) == f"--backend-option Npu.{key}: invalid value {value!r}: {reason}"
    assert (caught.value.id, caught.value.key) == ("Npu", key)


def test_missing_option_may_be_required() -> None:
    options = BackendOptions({})
    with pytest.raises(OptionError, match=r"^--backend-option Npu\.license: it is required$"):
        checked_creation("Npu", lambda: options.reject("license", "it is required"), options)


def test_unknown_options_are_rejected() -> None:
    options = BackendOptions({"tile": "8", "tyle": "8"})
    with pytest.raises(OptionError, match=r"Npu\.tyle: the backend has no such option; it has threads, tile$"):
        checked_creation("Npu", lambda: (options.integer("tile"), options.threads), options)
    options = BackendOptions({"tile": "8"})
    with pytest.raises(OptionError, match=r"Npu\.tile: the backend has no such option; it has no options$"):
        checked_creation("Npu", object, options)


def test_factory_decides_whether_it_takes_options() -> None:
    options = BackendOptions({})
    factories: list[tuple[Callable[..., object], bool]] = [
        (lambda: None, False),
        (lambda options: options, True),
        (lambda anything: anything, True),
        (lambda options=None: options, True),
        (lambda debug=False: debug, False),
        (lambda *, options=None: options, False),
        (object, False),
        (BackendOptions, True),
    ]
    assert [takes_options(factory) for factory, _ in factories] == [takes for _, takes in factories]
    assert call_factory(lambda given: given, options) is options
    assert call_factory(lambda debug=False: debug, options) is False


def test_options_are_part_of_the_identity() -> None:
    assert identity_with_options("abc", BackendOptions({})) == BackendIdentity("abc")
    assert BackendIdentity("abc").digest == "abc" and not BackendIdentity().digest
    digests = {
        identity_with_options(files, BackendOptions(values)).digest
        for files in ("abc", "")
        for values in ({"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"})
    }
    assert len(digests) == 8 and all(len(digest) == 64 for digest in digests)
    assert len({identity_with_options("", BackendOptions(dict.fromkeys(order, "1"))) for order in ("ab", "ba")}) == 1


def test_backend_may_exclude_options_from_the_cache_key() -> None:
    options = BackendOptions({"tile": "8", "threads": "4"})
    options.exclude_from_cache_key("threads", "power")
    identity = identity_with_options("abc", options)
    assert (identity.options, identity.other_options) == ((("tile", "8"),), (("threads", "4"),))
    only_tile = identity_with_options("abc", BackendOptions({"tile": "8"}))
    assert identity.digest == only_tile.digest
