"""Whether this machine can run a profile, and whether its engines read the samples as they should."""
