"""Members of the Python interface by version. A new member needs a new minor version and an entry here."""

from dataclasses import fields

from nnhal_driver.backends.api import (
    API_VERSION,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Output,
    Run,
    Sections,
    Support,
)

ADDED: dict[tuple[int, int], dict[type, set[str]]] = {
    (1, 0): {
        Backend: {"supports", "compile", "capabilities", "performance"},
        CompiledSubgraph: {"execute"},
        CompileOptions: {"preference", "tensor_bytes"},
        Output: {"declared", "write"},
        Run: {"check"},
        Support: {"reason", "nearest"},
    },
    (1, 1): {
        Backend: {
            *("load", "fingerprint", "extensions", "optimize"),
            *("before_load", "after_load", "before_unload", "after_unload"),
        },
        CompiledSubgraph: {
            *("save", "memory", "copies_inputs", "layouts", "resize_begin", "resize", "resize_end"),
            *("execute_begin", "execute_end", "wait_finish"),
        },
        CompileOptions: {"memory_mode"},
        Run: {"profile"},
        Sections: {"model", "data"},
    },
    (1, 2): {
        Backend: {
            *("before_load_network", "after_load_network", "before_unload_network", "after_unload_network", "close"),
            *("use_allocator", "create_memory_manager", "create_profiling_context"),
            *("device_type", "stops_between_operations", "hardware", "memory_bytes"),
        },
        CompiledSubgraph: {"device_operands"},
        CompileOptions: {"network", "check", "memory", "reserve"},
        Run: {"defer"},
    },
}
"""Additions of each version. Rows of released versions are never changed."""


def _members(class_: type) -> set[str]:
    declared = {field.name for field in fields(class_)} if hasattr(class_, "__dataclass_fields__") else set()
    return declared | {name for name in vars(class_) if not name.startswith("_")}


def test_members_are_listed_with_their_version() -> None:
    listed: dict[type, set[str]] = {}
    for members in ADDED.values():
        for class_, names in members.items():
            assert listed.setdefault(class_, set()).isdisjoint(names)
            listed[class_] |= names
    for class_, names in listed.items():
        assert _members(class_) == names, f"{class_.__name__}: raise the minor version of API_VERSION and add a row"
    assert max(ADDED) == API_VERSION
