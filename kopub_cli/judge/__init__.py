"""Commands that judge what was read, and compare it."""
