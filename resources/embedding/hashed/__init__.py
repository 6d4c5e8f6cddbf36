"""Vectors without weights."""
