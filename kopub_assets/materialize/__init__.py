"""How a shard of a table is made, whichever asset it is of."""
