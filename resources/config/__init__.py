"""Profiles, pins and overrides, and the configured resources that they make."""
