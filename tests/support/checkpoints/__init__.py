"""Tiny checkpoints of real model classes."""
