"""Regions that the corpus names itself."""
