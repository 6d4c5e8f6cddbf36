"""Readings as markdown and plain text, and their quality: no engine."""
