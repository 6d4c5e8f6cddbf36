"""The sensor `failed_runs`: one line for a run that failed, with what to do."""

from pathlib import Path

import dagster as dg
import pytest

from kopub_assets.running.execution import failed_runs
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages


@pytest.mark.parametrize(
    ("retried", "then"),
    [("false", "fix that, then choose Re-execute from failure, or kopub run"), ("true", "it is retried automatically")],
)
def test_a_failed_run_is_a_line_with_its_reason_and_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], retried: str, then: str
):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")])
    diary = str(tmp_path / "recognition.diary")
    platform.engines["recognition"] = SlowReader(diary=diary, die_on="b_1")
    result = platform.run("raw_pages,layout_regions,ocr_results", last="shard_01", tags={"dagster/will_retry": retried})
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs",
        dagster_instance=platform.instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
    ).for_run_failure()
    capfd.readouterr()
    failed_runs(context)
    (line,) = capfd.readouterr().err.splitlines()
    assert f"run {result.run_id[:8]} of shard_00...shard_01 failed: ocr_results: shard_01: the engine is out" in line
    assert line.endswith(then)


@dg.asset
def raw_pages(context: dg.AssetExecutionContext) -> None:
    """Fail as a step whose partition was removed after its run was queued."""
    dg.StaticPartitionsDefinition(["shard_00"]).get_partition_keys_in_range(
        dg.PartitionKeyRange("shard_07", "shard_08")
    )


def test_a_run_of_a_shard_that_is_gone_says_so(capfd: pytest.CaptureFixture[str]):
    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([raw_pages], instance=instance, raise_on_error=False)
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs",
        dagster_instance=instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
    ).for_run_failure()
    capfd.readouterr()
    failed_runs(context)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith(f"run {result.run_id[:8]}: shard_07, shard_08 are no longer in the corpus: nothing to do")


def test_the_platform_has_the_sensor(tmp_path: Path):
    definitions = Platform.of(tmp_path, [pages("a_1")]).definitions
    assert definitions.get_sensor_def("failed_runs").default_status is dg.DefaultSensorStatus.RUNNING
