"""The Dagster resources: what a run may set of each part of the library."""
