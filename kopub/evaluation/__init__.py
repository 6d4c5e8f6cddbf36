"""Benchmarks of reading: samples with known answers, scorers, and means with intervals.

Pure.
"""
