"""A Dagster run can set single fields of resources, but no command, folder or address."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kopub.config.choices import Documents, Figures, Pdf
from kopub.config.profile import find_engines, load_engine
from kopub.config.settings import ROOT, read_settings
from kopub.engine import PROFILE_ONLY, ProfileOnly, Resource
from kopub.pages.corpus import Corpus
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease
from kopub.store.table_store import ShardStore
from kopub.vllm.server import VLLMServer
from kopub_assets.definitions import definitions_of
from kopub_assets.running.execution import failures_of
from resources.base import launchpad_fields
from resources.profile import OWN, dagster_resources, resource_of

FOUND = find_engines()
ENGINES = [load_engine(section, name, FOUND) for section, names in FOUND.items() for name in names]
RESOURCES: list[type[Resource]] = [
    *(Corpus, HubTarget, LocalRelease, ShardStore, Gates, Pdf, Figures, Documents, VLLMServer),
    *ENGINES,
]
PLACE = re.compile(
    r"\b(folder|folders|url|urls|path|file|json|command|program|repository|repo|commit|dir|home)\b", re.I
)
HARMLESS = {(HubTarget, "branch")}
"""Fields that look like a place but are safe: a branch is in the repository that the profile names."""
TORN_DOWN: list[str] = []


class Server(Resource):
    url: str


class Reader(Resource):
    server: Server
    command: ProfileOnly[str] = "cat"
    prompt: str = "read"
    tries: int = 1

    def teardown(self) -> None:
        TORN_DOWN.append(self.prompt)


def run(
    resources: Mapping[str, Any], launchpad: Mapping[str, Any]
) -> tuple[list[tuple[str, int, str, str]], list[str]]:
    """Return the fields of the reader that an asset saw, and the failures."""
    seen: list[tuple[str, int, str, str]] = []

    @dg.asset
    def read(reader: dg.ResourceParam[Reader], gates: dg.ResourceParam[Gates]) -> None:
        seen.append((reader.prompt, reader.tries, reader.server.url, reader.command))

    result = dg.materialize(
        [read],
        resources=dagster_resources(resources),
        run_config={"resources": {name: {"config": fields} for name, fields in launchpad.items()}},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )
    return seen, failures_of(result)


def test_a_run_sets_one_field_and_the_others_stay_those_of_the_profile() -> None:
    TORN_DOWN.clear()
    reader = Reader(server=Server(url="http://a"), command="tac", prompt="mine", tries=3)
    resources = {"reader": reader, "gates": Gates()}
    assert run(resources, {}) == ([("mine", 3, "http://a", "tac")], [])
    assert run(resources, {"reader": {"tries": 5}}) == ([("mine", 5, "http://a", "tac")], [])
    assert TORN_DOWN == ["mine", "mine"]


@pytest.mark.parametrize(("field", "value"), [("server", {"url": "http://b"}), ("command", "touch x")])
def test_the_server_and_the_command_of_an_engine_are_no_fields_of_a_run(field: str, value: Any) -> None:
    resources = {"reader": Reader(server=Server(url="http://a")), "gates": Gates()}
    with pytest.raises(dg.DagsterInvalidConfigError, match=f'unexpected config entry "{field}"'):
        run(resources, {"reader": {field: value}})


def test_a_value_that_cannot_be_used_is_one_line() -> None:
    resources = {"reader": Reader(server=Server(url="http://a")), "gates": Gates()}
    seen, failures = run(resources, {"gates": {"max_lost_share": 5.0}})
    assert seen == []
    assert failures == ["gates.max_lost_share is 5.0, and must be a number, from 0 to 1"]


@pytest.mark.parametrize("part", RESOURCES, ids=lambda part: part.__name__)
def test_a_resource_declares_what_a_run_may_set_of_its_part_of_the_library(part: type[Resource]) -> None:
    """A field that is missing, stale or of another type would otherwise show in a run."""
    own = resource_of(part)
    assert own in OWN.values()
    fields = {name: field.annotation for name, field in own.model_fields.items() if name in part.model_fields}
    assert fields.pop("server", None) == (Any if "server" in part.model_fields else None)
    assert fields == launchpad_fields(part)


def test_the_server_of_an_engine_is_a_resource_whose_size_a_run_sets() -> None:
    server = VLLMServer(model="m", revision="r", mode="external", urls=["http://a"])
    seen: list[VLLMServer] = []

    @dg.asset
    def notes(reader: dg.ResourceParam[GlmOcrRecognizer]) -> None:
        seen.append(reader.server)

    def make(**fields: Any) -> list[str]:
        result = dg.materialize(
            [notes],
            resources=dagster_resources({"reader": GlmOcrRecognizer(server=server)}),
            run_config={"resources": {"reader_server": {"config": fields}}},
            raise_on_error=False,
        )
        return failures_of(result)

    assert (make(), make(idle_seconds=5)) == ([], [])
    assert seen == [server, server.model_copy(update={"idle_seconds": 5})]
    assert make(max_num_seqs=0) == ["reader_server.max_num_seqs is 0, and must be a whole number, at least 1"]
    for field, value in {"urls": ["http://b"], "command": ["touch", "x"], "model": "other"}.items():
        with pytest.raises(dg.DagsterInvalidConfigError, match=f'unexpected config entry "{field}"'):
            make(**{field: value})


def test_the_launchpad_says_what_a_field_takes(tmp_path: Path) -> None:
    settings = read_settings({"KOPUB_HOME": str(tmp_path), "KOPUB_PROFILE": "cpu"})
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    resources: Any = job.run_config_schema.config_type
    for name in ("resources", "pdf", "config"):
        resources = resources.fields[name].config_type
    text_layer = resources.fields["text_layer"]
    assert text_layer.default_value == settings.pdf.text_layer
    assert text_layer.description.endswith("(one of never, check, prefer)")


ATTEMPTS: list[str] = []


def retried() -> dg.JobDefinition:
    """Return a job with the platform's IO manager, whose second step fails once."""

    @dg.asset
    def parent() -> None: ...

    @dg.asset(deps=[parent])
    def table(context: dg.AssetExecutionContext) -> None:
        ATTEMPTS.append(context.run.run_id)
        if len(ATTEMPTS) == 1:
            raise dg.Failure("the node died")

    every = definitions_of(read_settings({})).resources or {}
    resources = {name: every[name] for name in ("io_manager", "store")}
    job = dg.define_asset_job("make", dg.AssetSelection.all(), executor_def=dg.in_process_executor)
    return dg.Definitions(assets=[parent, table], jobs=[job], resources=resources).resolve_job_def("make")


def test_a_failed_run_can_be_retried(tmp_path: Path) -> None:
    ATTEMPTS.clear()
    job = dg.reconstructable(retried)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with dg.execute_job(job, instance) as first:
            assert not first.success
        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, reexecution_options=again) as second:
            assert second.success
    assert [first.run_id, second.run_id] == ATTEMPTS


def names_a_place(name: str, description: str | None) -> bool:
    return PLACE.search(f"{name.replace('_', ' ')} {description or ''}") is not None


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.__name__)
def test_every_field_that_names_a_command_or_a_place_is_closed(resource: type[Resource]) -> None:
    for name, field in resource.model_fields.items():
        takes_text = "str" in str(field.annotation) and "Literal" not in str(field.annotation)
        if takes_text and names_a_place(name, field.description) and (resource, name) not in HARMLESS:
            assert PROFILE_ONLY in field.metadata, name


@pytest.mark.parametrize("profile", sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml")))
def test_no_run_of_a_profile_takes_a_place(profile: str, tmp_path: Path) -> None:
    if profile == "models":
        return
    settings = read_settings({"KOPUB_HOME": str(tmp_path), "KOPUB_PROFILE": profile})
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    taken = [path for path in leaves(job.run_config_schema.config_type) if "resources" in path]
    assert ("resources", "hub", "config", "branch") in taken
    assert [path for path in taken if names_a_place(path[-1], None)] == []


def leaves(config_type: Any, *path: str) -> Iterator[tuple[str, ...]]:
    fields = getattr(config_type, "fields", None)
    if fields is None:
        yield path
    else:
        for name, field in fields.items():
            yield from leaves(field.config_type, *path, name)
