"""The number of the interface follows what is in it: who adds to it must add here too, under a minor of its own."""

from dataclasses import fields

from driver.backends.api import (
    API_VERSION,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Output,
    Run,
    Sections,
    Support,
)

ADDED = {
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
}
"""What each version added. Rows of released versions are never changed."""


def _members(one: type) -> set[str]:
    declared = {field.name for field in fields(one)} if hasattr(one, "__dataclass_fields__") else set()
    return declared | {name for name in vars(one) if not name.startswith("_")}


def test_everything_has_the_version_that_added_it() -> None:
    listed: dict[type, set[str]] = {}
    for members in ADDED.values():
        for one, names in members.items():
            assert listed.setdefault(one, set()).isdisjoint(names)
            listed[one] |= names
    for one, names in listed.items():
        assert _members(one) == names, f"{one.__name__}: raise the minor of API_VERSION, and add a row for it here"
    assert max(ADDED) == API_VERSION
