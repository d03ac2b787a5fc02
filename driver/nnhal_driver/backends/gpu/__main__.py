"""The GPUs of this machine, and the trial of one: lines of JSON.

    python -m nnhal_driver.backends.gpu [NAME [LEFT_OUT ...]]

The names are those of `matching_adapters`, and of GPUs that are not tried.
"""

import json
import os
import sys
from dataclasses import asdict

from nnhal_driver.backends.gpu.adapters import NoAdapterError, claim_adapter, list_adapters, matching_adapters
from nnhal_driver.backends.gpu.trial import run_trial


def main(name: str = "", *left_out: str) -> None:
    """Print all GPUs, the one that is tried, and its figures; or why there is none."""
    try:
        found = [adapter for adapter in list_adapters() if adapter.name not in left_out]
        _print("found", [asdict(adapter) for adapter in found])
        adapter = matching_adapters(found, name)[0]
        claim_adapter(adapter)
        _print("tried", asdict(adapter))
        _print("trial", asdict(run_trial()))
    except NoAdapterError as error:
        _print("problem", str(error))


def _print(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # some drivers fail in exit handlers
