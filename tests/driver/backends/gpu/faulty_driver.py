"""A second GPU for tests: SwiftShader behind a driver whose faults are switched on and off."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.driver.backends.gpu.software_gpu import DRIVER

SOURCE = Path(__file__).with_suffix(".c")
NAME = "Faulty Card"


class FaultyDriver:
    """The driver, compiled for one folder. `faulty_driver.c` has the letters of the faults."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        if not DRIVER.exists():
            pytest.skip("there is no SwiftShader: apt-get install chromium libvulkan1")
        self._fault = folder / "fault"
        library = folder / "libfaulty.so"
        texts = {"FAULT_FILE": self._fault, "GPU_NAME": name, "DRIVER": DRIVER.with_name("libvk_swiftshader.so")}
        macros = [f'-D{macro}="{text}"' for macro, text in texts.items()]
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", *macros, "-o", library, SOURCE, "-ldl"], check=True)
        self.manifest = folder / "faulty.json"
        icd = {"library_path": str(library), "api_version": "1.0.5"}
        self.manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))

    def set_fault(self, letter: str) -> None:
        """Switch a fault on; "" switches it off."""
        new = self._fault.with_suffix(".new")
        new.write_text(letter)
        new.replace(self._fault)
