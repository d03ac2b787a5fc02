"""Reading and checking manifests of Kubernetes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def parsed(text: str) -> list[dict[str, Any]]:
    """Return the resources of a text."""
    return [resource for resource in yaml.safe_load_all(text) if resource]


def the(kind: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    return next(resource for resource in resources if resource["kind"] == kind)


def validate(resources: list[dict[str, Any]]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    assert resources
    for resource in resources:
        if resource["kind"] not in ("ServiceMonitor", "PrometheusRule"):  # custom resources have no schema there
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
