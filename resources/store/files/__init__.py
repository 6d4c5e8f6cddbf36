"""Whole files of a store, on a disk or on object storage, and the faults of what lies behind a network."""
