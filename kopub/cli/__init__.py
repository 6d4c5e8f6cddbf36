"""The `kopub` command: everything that is not a materialization."""
