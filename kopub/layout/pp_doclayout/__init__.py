"""Layout by PP-DocLayoutV3, on a GPU."""
