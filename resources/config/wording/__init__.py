"""What is said of a profile's fields and of values that are wrong. Pure."""
