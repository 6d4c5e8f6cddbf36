"""Fingerprints change with what changes results, and with nothing else."""

from tests.doubles.engines import OneRegionLayout, SlowReader


def test_a_parameter_counts_unless_it_only_changes_the_speed():
    assert OneRegionLayout(diary="d").recipe() != OneRegionLayout(diary="d", revision="r2").recipe()
    assert SlowReader(diary="d").recipe() == SlowReader(diary="d", seconds=2.0).recipe()
    assert SlowReader(diary="d").recipe() != SlowReader(diary="d", prompt="say").recipe()
