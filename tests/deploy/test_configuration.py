"""Dagster and Kubernetes accept `deploy/`, and all deployments monitor and retry runs alike."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.instance.ref import InstanceRef
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin

from kopub.config.environment import read_environment
from kopub.config.settings import ROOT
from tests.docs.markdown import blocks
from tests.support.installed import imported

KUBERNETES = "1.32"
VARIABLES = {
    "DAGSTER_PG_HOST": "localhost",
    "DAGSTER_PG_PORT": "5432",
    "DAGSTER_PG_USERNAME": "u",
    "DAGSTER_PG_PASSWORD": "p",
    "DAGSTER_PG_DB": "d",
    "DAGSTER_LOGS_BUCKET": "logs",
    "RAY_DASHBOARD_URL": "http://localhost:8265",
}
FILES = {name: ROOT / "deploy" / name / "dagster.yaml" for name in ("local", "postgres", "ray")}
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "k8s" / "values.yaml").read_text())
(SERVER,) = VALUES["dagster-user-deployments"]["deployments"]
LIMITED = ("dagster/asset_partition_range_start", "dagster/partition")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def _of_chart(kubeconfig: str) -> dict[str, Any]:
    """Return the parts of the chart's `dagster.yaml` that concern runs, as its templates render them."""
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    queue = VALUES["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    kubernetes = launcher["runK8sConfig"]
    return {
        "run_launcher": {
            "module": "dagster_k8s",
            "class": "K8sRunLauncher",
            "config": {
                "load_incluster_config": False,
                "kubeconfig_file": kubeconfig,
                "job_namespace": "kopub",
                "image_pull_policy": launcher["imagePullPolicy"],
                "service_account_name": "kopub-dagster",
                "dagster_home": "/opt/dagster/dagster_home",
                "instance_config_map": "kopub-dagster-instance",
                "postgres_password_secret": VALUES["global"]["postgresqlSecretName"],
                "volumes": launcher["volumes"],
                "volume_mounts": launcher["volumeMounts"],
                "fail_pod_on_run_failure": launcher["failPodOnRunFailure"],
                "run_k8s_config": {
                    "container_config": kubernetes["containerConfig"],
                    "pod_spec_config": kubernetes["podSpecConfig"],
                    "job_spec_config": kubernetes["jobSpecConfig"],
                },
            },
        },
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {
                "max_concurrent_runs": queue["maxConcurrentRuns"],
                "tag_concurrency_limits": queue["tagConcurrencyLimits"],
            },
        },
        **VALUES["additionalInstanceConfig"],
    }


def _context_of_chart() -> dict[str, Any]:
    """Return the context that the chart's code server passes to its runs."""
    return {
        "k8s": {
            "image_pull_policy": SERVER["image"]["pullPolicy"],
            "env_config_maps": ["kopub-dagster-user-deployments-kopub-user-env"],
            "env_secrets": [secret["name"] for secret in SERVER["envSecrets"]],
            "volume_mounts": SERVER["volumeMounts"],
            "volumes": SERVER["volumes"],
            "namespace": "kopub",
            "service_account_name": "kopub-dagster-user-deployments-user-deployments",
            "run_k8s_config": {"pod_spec_config": {"automount_service_account_token": True}},
        }
    }


def _written(name: str, folder: Path) -> dict[str, Any]:
    return yaml.safe_load(FILES[name].read_text()) if name in FILES else _of_chart(str(folder / "kubeconfig"))


@pytest.mark.parametrize("name", [*FILES, "k8s"])
def test_every_deployment_has_the_same_care_of_its_runs(name: str, tmp_path: Path):
    packages = {"ray": "dagster_ray", "k8s": "dagster_k8s", "postgres": "dagster_postgres"}
    if name in packages:
        imported(packages[name])
    written = _written(name, tmp_path)
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(written))
    settings: dict[str, Any] = dict(InstanceRef.from_dir(str(tmp_path)).settings)

    assert settings["run_retries"] == {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}
    assert settings["run_monitoring"]["enabled"]
    assert settings["run_monitoring"]["max_runtime_seconds"] > 0
    assert settings["run_monitoring"]["poll_interval_seconds"] <= 30
    queue = written.get("concurrency", {}).get("runs") or written["run_coordinator"]["config"]
    one_at_a_time = {"value": {"applyLimitPerUniqueValue": True}, "limit": 1}
    assert queue["tag_concurrency_limits"] == [{"key": key, **one_at_a_time} for key in LIMITED]


@pytest.mark.parametrize("name", ["postgres", "ray"])
def test_the_address_of_postgres_names_the_driver_that_is_installed(name: str, tmp_path: Path):
    psycopg2 = imported("psycopg2")
    sqlalchemy = imported("sqlalchemy")
    scheme = yaml.safe_load(FILES[name].read_text())["storage"]["postgres"]["postgres_db"]["scheme"]
    assert scheme == VALUES["postgresql"]["postgresqlScheme"]
    assert sqlalchemy.create_engine(f"{scheme}://u:p@localhost/d").dialect.dbapi is psycopg2


@pytest.mark.parametrize("name", ["postgres", "ray"])
def test_the_documented_copy_of_the_settings_leaves_those_of_the_checkout_alone(name: str, tmp_path: Path):
    """`make setup` links the settings of one machine into the home of a checkout."""
    for each in (name, "local"):
        shutil.copytree(ROOT / "deploy" / each, tmp_path / "deploy" / each)
    (tmp_path / ".dagster").mkdir()
    (tmp_path / ".dagster" / "dagster.yaml").symlink_to("../kopub/data/dagster.yaml")
    (block,) = (each for each in blocks(ROOT / "docs" / "scale.md") if f"cp deploy/{name}/" in each.text)
    typed = "\n".join(line for line in block.text.splitlines() if "DAGSTER_HOME" in line)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path / ".dagster")}
    subprocess.run(["sh", "-ec", typed], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "deploy" / "local" / "dagster.yaml").read_text() == FILES["local"].read_text()


class _Kubernetes:
    """An API server that keeps the job it is asked to create."""

    def create_namespaced_job(self, body: Any, namespace: str, **_: Any) -> None:
        self.job, self.namespace = body, namespace


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """Return the Kubernetes job that the chart starts for a run."""
    dagster_k8s = imported("dagster_k8s")
    client = imported("kubernetes.client")
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    cluster = {"name": "k", "cluster": {"server": "http://localhost:1"}}
    kubeconfig = {"contexts": [context], "clusters": [cluster], "users": [{"name": "u", "user": {}}]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump({**kubeconfig, "current-context": "c"}))

    api = _Kubernetes()
    config = _of_chart(str(tmp_path / "kubeconfig"))["run_launcher"]["config"]
    launcher = dagster_k8s.K8sRunLauncher(**config, k8s_client_batch_api=api, k8s_client_core_api=object())
    pointer = ModuleCodePointer("definitions", "defs", None)
    repository = RepositoryPythonOrigin("python", pointer, "kopub:1", None, _context_of_chart())
    with dg.DagsterInstance.ephemeral() as instance:
        launcher.register_instance(instance)
        run = instance.create_run_for_job(_nothing, job_code_origin=JobPythonOrigin("everything", repository))
        launcher._launch_k8s_job_with_args("dagster-run-1", ["dagster", "api"], run)
    return client.ApiClient().sanitize_for_serialization(api.job)


def test_a_run_on_kubernetes_is_a_job_that_kubernetes_takes(job: dict[str, Any]):
    kubernetes_validate = imported("kubernetes_validate")
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert len(set(volumes)) == len(volumes)
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert {volume["name"] for volume in SERVER["volumes"]} < set(volumes)
    assert {"secretRef": {"name": "kopub-storage"}} in container["envFrom"]
    assert {"configMapRef": {"name": "kopub-dagster-user-deployments-kopub-user-env"}} in container["envFrom"]
    assert [value["name"] for value in container["env"] if "valueFrom" in value] == ["DAGSTER_PG_PASSWORD"]
    assert pod["tolerations"]
    assert pod["nodeSelector"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == SERVER["securityContext"]


def test_the_model_servers_are_what_kubernetes_takes_and_what_the_pins_say():
    kubernetes_validate = imported("kubernetes_validate")
    service, servers = yaml.safe_load_all((ROOT / "deploy" / "k8s" / "vllm.yaml").read_text())
    for manifest in (service, servers):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    assert servers["spec"]["serviceName"] == service["metadata"]["name"]
    pin = yaml.safe_load((ROOT / "profiles" / "models.yaml").read_text())["glm_ocr"]
    (container,) = servers["spec"]["template"]["spec"]["containers"]
    # Ready is asked sooner than alive: a server that hangs gets no requests before it is started again.
    ready, alive = (container[f"{probe}Probe"] for probe in ("readiness", "liveness"))
    assert ready["periodSeconds"] * ready["failureThreshold"] < alive["periodSeconds"] * alive["failureThreshold"]
    assert container["securityContext"] == SERVER["securityContext"]
    assert f"--model={pin['repo']}" in container["args"]
    assert f"--revision={pin['revision']}" in container["args"]


def test_the_chart_sets_what_the_platform_has():
    environment: Mapping[str, str] = SERVER["env"]
    read = read_environment(environment)
    assert {override.path: override.text for override in read.overrides} == {
        ("shards_per_run",): "16",
        ("corpus", "url"): environment["KOPUB_CORPUS__URL"],
        ("store", "url"): environment["KOPUB_STORE__URL"],
        ("release", "folder"): environment["KOPUB_RELEASE__FOLDER"],
    }
    assert (ROOT / "profiles" / f"{environment['KOPUB_PROFILE']}.yaml").exists()


@dg.job
def _nothing() -> None:
    """A job without steps."""
