"""Tools for developers of the project; none of them is installed."""
