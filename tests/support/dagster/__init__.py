"""Dagster itself for tests: homes, daemons, and assets for them to run."""
