"""How much loss a run may bear before it stops instead of publishing."""

import dagster as dg
from pydantic import Field


class Gates(dg.ConfigurableResource):
    """Limits of the blocking checks; raise one in the Launchpad for a run that is known to be different."""

    max_empty_jump: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of pages without regions, over what the shard had before, that stops a run.",
    )
    expected_empty: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of pages without regions that a first build may have: covers, blank versos.",
    )
