"""The manifests of fleets: valid, and consistent with the service.

Resources of KubeRay are checked against a list of the fields that its documentation names, and their pods against the
schema of Kubernetes: no package has the schema of KubeRay.
"""

import tomllib
from typing import Any

import pytest

from nnhal_service.peers.fleet.peer_addresses import PeerTarget
from nnhal_service.settings import Settings
from tests.deploy.manifests import DEPLOY, parsed, the, validate

FLEET = parsed((DEPLOY / "kubernetes" / "fleet.yaml").read_text())
RAY = parsed((DEPLOY / "kubernetes" / "kuberay.yaml").read_text())
RAY_FIELDS = {
    "RayCluster": {"rayVersion", "headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling", "autoscalerOptions"},
    "RayJob": {"clusterSelector", "entrypoint", "shutdownAfterJobFinishes", "submissionMode", "rayClusterSpec"},
}
GROUP_FIELDS = {"rayStartParams", "template", "serviceType"}
WORKER_FIELDS = {*GROUP_FIELDS, "groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "scaleStrategy"}


def test_manifests_follow_the_schemas() -> None:
    validate(FLEET)
    validate([each for each in RAY if not each["apiVersion"].startswith("ray.io/")])


def test_settings_are_those_of_the_service() -> None:
    settings = Settings.model_validate(tomllib.loads(the("ConfigMap", FLEET)["data"]["nnhal.toml"]))
    settings.check_exposure()
    assert settings.fleet_peers is not None
    service = the("Service", FLEET)
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert PeerTarget.parse(settings.fleet_peers).name == f"{service['metadata']['name']}:{ports['admin']}"
    assert settings.admin_listen == f"0.0.0.0:{ports['admin']}" and settings.listen[0] == f"0.0.0.0:{ports['grpc']}"
    (policy,) = settings.policy.identities.items()
    assert policy[0] == f"certificate:CN={service['metadata']['name']}" and policy[1].administer


def test_members_can_reach_each_other_and_no_one_else_their_administration() -> None:
    policy = the("NetworkPolicy", FLEET)["spec"]
    own = policy["podSelector"]
    for rules, key in ((policy["ingress"], "from"), (policy["egress"], "to")):
        (admin,) = [rule for rule in rules if {"port": "admin"} in rule["ports"]]
        assert admin[key] == [{"podSelector": own}]


def test_pods_are_those_of_the_chart() -> None:
    pod = the("StatefulSet", FLEET)["spec"]["template"]["spec"]
    plain = the("StatefulSet", parsed((DEPLOY / "kubernetes" / "nnhal.yaml").read_text()))["spec"]["template"]["spec"]
    (container,), (other,) = pod["containers"], plain["containers"]
    for name in ("securityContext", "automountServiceAccountToken"):
        assert pod[name] == plain[name]
    for name in ("securityContext", "resources", "image"):
        assert container[name] == other[name]
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] >= int(pause) + float(container["env"][0]["value"]) + 2
    assert the("PodDisruptionBudget", FLEET)["spec"]["maxUnavailable"] == 1


def test_resources_of_kuberay_have_known_fields() -> None:
    cluster = the("RayCluster", RAY)
    for resource in (cluster, the("RayJob", RAY)):
        assert resource["apiVersion"] == "ray.io/v1"
        assert set(resource["spec"]) <= RAY_FIELDS[resource["kind"]]
    head, (hosts,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    assert set(head) <= GROUP_FIELDS and set(hosts) <= WORKER_FIELDS
    assert hosts["minReplicas"] <= hosts["replicas"] <= hosts["maxReplicas"]
    for group in (head, hosts):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **group["template"]} for group in (head, hosts)
    ]
    validate(pods)
    assert the("RayJob", RAY)["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}


def test_processes_of_ray_have_the_settings_of_local_clusters() -> None:
    options = pytest.importorskip("nnhal_fleet.ray_cluster.options")
    spec: dict[str, Any] = the("RayCluster", RAY)["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == options.RAY_SETTINGS
    resources = spec["workerGroupSpecs"][0]["rayStartParams"]["resources"]
    assert options.HOST_RESOURCE in resources
