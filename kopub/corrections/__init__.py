"""Corrections by people, and their effect on the readings."""
