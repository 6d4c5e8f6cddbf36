"""Dagster homes and daemons for tests, and assets for them to run."""
