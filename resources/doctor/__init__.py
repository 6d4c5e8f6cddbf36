"""Checks of the machine for a profile, and of its engines on the samples."""
