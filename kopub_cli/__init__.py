"""The `kopub` command: what is not a materialization."""
