"""The collaborators of the assets, a package each, with a small protocol and its engines."""
