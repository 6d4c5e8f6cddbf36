"""A run of Dagster's own commands records its machine, as `kopub run` does."""

import platform
from pathlib import Path

import pytest

from kopub_assets import shard_assets
from kopub_assets.running.watched_launcher import MACHINE_TAG
from tests.support.harness import Platform
from tests.support.sources.corpora import pages


@pytest.mark.parametrize(("typed", "machine"), [(True, platform.node()), (False, None)])
def test_only_a_run_that_was_typed_has_a_machine(
    typed: bool, machine: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_assets, "at_terminal", lambda: typed)
    made = Platform.of(tmp_path, [pages("a_1")])
    assert made.run("raw_pages").success
    (run,) = made.instance.get_runs()
    assert run.tags.get(MACHINE_TAG) == machine
