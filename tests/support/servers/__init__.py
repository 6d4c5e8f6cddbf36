"""Real servers of other projects, for tests on machines that have them."""
