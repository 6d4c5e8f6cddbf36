"""Corrections by people, and their effect on what was read."""
