"""Corpora, documents and images for tests."""
