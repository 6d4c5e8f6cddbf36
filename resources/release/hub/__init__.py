"""The way of a release to a dataset repository of the Hub."""
