"""Options of plug-ins: the factory that takes them, the trial in the child process, and start-up errors."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nnhal.types import DeviceType
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.identity import full_version, identity_of, measured_as
from nnhal_driver.backends.options import OptionError
from nnhal_driver.backends.plugins import doctor
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.backends.plugins.probe import probe
from nnhal_driver.backends.plugins.search import find
from nnhal_driver.backends.report import CandidateState
from nnhal_tools.cli import app
from tests.driver.backends.plugins import plugin_files

FACTORY = "def BackendFactory():\n    return Doubler()"
TAKES_OPTIONS = {
    FACTORY: """def BackendFactory(options):
    backend = Doubler()
    backend.factor = options.integer("factor", 2, minimum=1)
    backend.threads = options.threads
    options.exclude_from_cache_key("threads")
    return backend"""
}


def _factor(backend: Backend) -> object:
    return vars(backend)["factor"]


def test_factory_gets_its_options(tmp_path: Path) -> None:
    candidate = file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", TAKES_OPTIONS))
    plain = load(candidate).backend
    tuned = load(candidate, options={"Doubler": {"factor": "5", "threads": "3"}, "CpuRef": {"x": "1"}}).backend
    assert (_factor(plain), _factor(tuned)) == (2, 5)
    assert identity_of(tuned).options == (("factor", "5"),)
    assert full_version(plain) != full_version(tuned)
    threaded = load(candidate, options={"Doubler": {"threads": "4"}}).backend
    assert full_version(threaded) == full_version(plain), "its saved models do not depend on this option"
    assert measured_as(threaded) != measured_as(plain), "its speed does"


def test_factory_without_an_argument_has_no_options(tmp_path: Path) -> None:
    candidate = file_candidate(plugin_files.write(tmp_path, "A_B_backend.py"))
    with pytest.raises(
        OptionError, match=r"--backend-option Doubler\.factor: the backend has no such option; it has no"
    ):
        load(candidate, options={"Doubler": {"factor": "5"}})


def test_rejected_options_stop_the_search(tmp_path: Path) -> None:
    candidate = file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", TAKES_OPTIONS))
    probed = probe(candidate, option_sets=[{"Doubler": {"factor": "0"}}])
    assert (probed.report.state, probed.rejected_option) == (CandidateState.FAILED, "factor")
    with pytest.raises(OptionError) as caught:
        find(str(tmp_path), option_sets=[{}, {"Doubler": {"tempo": "5"}}])
    assert str(caught.value) == (
        "--backend-option Doubler.tempo: the backend has no such option; it has factor, threads"
    )


def test_options_of_each_device_are_tried(tmp_path: Path) -> None:
    """The factory crashes with the options of the second device, which must not happen in the service."""
    body = "    options.flag('crash') and __import__('os').abort()\n    return Doubler()"
    plugin_files.write(tmp_path, "A_B_backend.py", {FACTORY: f"def BackendFactory(options):\n{body}"})
    assert find(str(tmp_path), option_sets=[{}, {"Doubler": {"crash": "false"}}]).registrations
    (report,) = find(str(tmp_path), option_sets=[{}, {"Doubler": {"crash": "true"}}]).reports
    assert report.reason == "it crashed the process with SIGABRT while calling BackendFactory"


def test_each_assembly_has_its_options(tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_B_backend.py", TAKES_OPTIONS)
    found = find(str(tmp_path))
    backends = [
        registry.assemble(["Doubler"], found, {"Doubler": {"factor": str(factor)}}).backends[0] for factor in (3, 4)
    ]
    assert [_factor(backend) for backend in backends] == [3, 4]
    with pytest.raises(OptionError, match=r"--backend-option CpuRef\.speed: the backend has no such option"):
        registry.assemble(["CpuRef"], found, {"CpuRef": {"speed": "9"}})


def test_type_of_the_hardware(tmp_path: Path) -> None:
    declared = {
        'version = "7"': 'version = "7"\n    device_type = DeviceType.GPU',
        "import API_VERSION,": "import API_VERSION, DeviceType,",
    }
    backend = load(file_candidate(plugin_files.write(tmp_path, "A_B_backend.py", declared))).backend
    assert backend.device_type == DeviceType.GPU
    wrong = {'version = "7"': 'version = "7"\n    device_type = "GPU"'}
    with pytest.raises(LoadError, match="the backend's device_type is 'GPU'; expected a DeviceType"):
        load(file_candidate(plugin_files.write(tmp_path, "A_C_backend.py", wrong)))


@pytest.mark.slow
def test_doctor_lists_and_sets_options(tmp_path: Path) -> None:
    path = plugin_files.write(tmp_path, "A_B_backend.py", TAKES_OPTIONS)
    lines, ready = doctor.diagnose(path)
    assert ready and {"type         CPU", "option       factor", "option       threads"} <= set(lines)
    tuned, ready = doctor.diagnose(path, {"factor": "5"})
    assert ready and tuned[3] != lines[3], "the version has the options"
    faulty, ready = doctor.diagnose(path, {"factor": "0"})
    assert not ready and any("--backend-option Doubler.factor: invalid value '0'" in line for line in faulty)
    command = ["backends", "doctor", str(path), "--option", "factor=0"]
    assert CliRunner().invoke(app, command).exit_code == 1
    assert CliRunner().invoke(app, [*command[:-1], "factor=3"]).exit_code == 0
