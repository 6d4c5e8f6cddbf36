"""How the tables are made, when they are stale, and where they come from."""
