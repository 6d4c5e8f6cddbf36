"""Profiles, pins and overrides, and the resources configured by them."""
