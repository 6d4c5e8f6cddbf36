"""Checks of a machine for a profile, and of the profile's engines on the samples."""
