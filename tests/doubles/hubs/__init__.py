"""Doubles of the Hub."""
