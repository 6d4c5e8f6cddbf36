"""Corpora, documents and pictures for tests."""
