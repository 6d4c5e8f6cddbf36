"""The rows of tables, looked at in other ways than they are stored. Pure."""
