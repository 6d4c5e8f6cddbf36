"""One module for each kind of benchmark: how its folder is read. Nothing is downloaded."""
