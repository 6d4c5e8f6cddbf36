"""Where pages come from, where tables are kept, and where a release goes."""

from typing import Any

import dagster as dg

from resources.base import ProfileResource


class CorpusResource(ProfileResource):
    """The pages of the corpus, by its index."""

    cache_gb: float
    upright: bool


class StoreResource(ProfileResource):
    """The tables of every shard, on disk or on object storage."""

    keep_versions: int
    allow_downgrade: bool


class ReleaseResource(ProfileResource):
    """The release as a folder that `datasets` opens."""

    title: str
    license: str | None
    publish_under: str | None
    page_images: bool
    corrections: str


class HubResource(ProfileResource):
    """The repository of the Hugging Face Hub that a run may push the release to."""

    branch: str
    create: bool


class NoValues(dg.IOManager):
    """An IO manager that passes nothing between steps, because the store holds the tables.

    Dagster's default could be given a folder in the Launchpad, and its in-memory one prevents retries of failed runs.
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise dg.DagsterInvariantViolationError(f"{context.step_key} returned a value; the store holds the tables")

    def load_input(self, context: dg.InputContext) -> Any:
        raise dg.DagsterInvariantViolationError(f"{context.name} has no value; the store holds the tables")
