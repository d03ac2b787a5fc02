"""`nnhal info`: the properties of a device."""

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nnhal_tools.cli.console import make_console, print_json, print_table, print_text, show_connecting
from nnhal_tools.cli.options import CONNECT_S, DeviceName, Json, Target
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.tables import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from nnhal.types import Capabilities


@with_security
def info(target: Target = None, device: DeviceName = "", as_json: Json = False) -> None:
    """Show the properties of a service's device.

    The exit code is 1 if the service does not respond.
    """
    with show_connecting(target):
        facts = _fetch(target, device)
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _fetch(target: str | None, name: str) -> dict[str, Any]:
    """Return the properties of the device in the form of the JSON output."""
    import nnhal

    with nnhal.connect(target, device=name, timeout=CONNECT_S) as device:
        return {
            "target": target or "a service started by this command",
            "device": name,
            "version": device.version,
            "interface": {"version": device.interface_version, "hash": device.interface_hash},
            "type": device.type.name,
            "capabilities": _capabilities(device.capabilities),
            "extensions": [extension.name for extension in device.extensions],
            "cache": asdict(device.cache_counters()),
            "backends": [asdict(backend) | {"state": backend.state.name} for backend in device.backends()],
        }


def _capabilities(capabilities: "Capabilities") -> dict[str, Any]:
    from nnhal.types import type_name

    return {
        "operand_types": {type_name(p.type): asdict(p.info) for p in capabilities.operand_performance},
        "relaxed_float32_to_float16_scalar": asdict(capabilities.relaxed_float32_to_float16_performance_scalar),
        "relaxed_float32_to_float16_tensor": asdict(capabilities.relaxed_float32_to_float16_performance_tensor),
        "if": asdict(capabilities.if_performance),
        "while": asdict(capabilities.while_performance),
    }


def _show(facts: dict[str, Any]) -> None:
    console = make_console()
    interface = facts["interface"]
    print_text(console, f"{facts['version']} at {facts['target']}")
    if facts["device"]:
        print_text(console, f"device      {facts['device']}")
    console.print(f"type        {facts['type']}")
    print_text(console, f"interface   version {interface['version']}, hash {interface['hash']}")
    print_text(console, f"extensions  {', '.join(facts['extensions']) or 'none'}")
    counters = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in facts["cache"].items())
    print_text(console, f"cache       {counters}")
    print_table(console, _performance_table(facts["capabilities"]))
    print_table(console, _backend_table(facts["backends"]))
    for backend in facts["backends"]:
        for name, value in backend["hardware"].items():
            print_text(console, f"{backend['id']} {name}: {value}")


def _performance_table(capabilities: dict[str, Any]) -> "Table":
    table = make_table("performance on", "time", "power", right=("time", "power"))
    table.title, table.title_justify, table.title_style = "Ratio to the CPU; lower is better", "left", ""
    for name, performance in _group_rows(capabilities):
        table.add_row(name, f"{performance['exec_time']:g}", f"{performance['power_usage']:g}")
    return table


def _group_rows(capabilities: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """Return the rows of the table. Operand types with the same performance share a row."""
    groups: defaultdict[tuple[float, ...], list[str]] = defaultdict(list)
    by_type: dict[str, dict[str, float]] = capabilities["operand_types"]
    for name, performance in by_type.items():
        groups[tuple(performance.values())].append(name)
    if len(groups) == 1:
        rows = [("every operand type", next(iter(by_type.values())))]
    else:
        rows = [(", ".join(names), by_type[names[0]]) for names in groups.values()]
    return [
        *rows,
        ("float32 relaxed to float16, scalar", capabilities["relaxed_float32_to_float16_scalar"]),
        ("float32 relaxed to float16, tensor", capabilities["relaxed_float32_to_float16_tensor"]),
        ("IF", capabilities["if"]),
        ("WHILE", capabilities["while"]),
    ]


def _backend_table(backends: list[dict[str, Any]]) -> "Table":
    table = make_table("backend", "version", "state", "reason", "from")
    for backend in backends:
        count = backend["quarantined_models"]
        quarantine = f"{counted(count, 'model')} in quarantine" if count else ""
        reason = "; ".join(filter(None, (backend["reason"], quarantine)))
        table.add_row(backend["id"], backend["version"], backend["state"], reason, backend["origin"])
    return table
