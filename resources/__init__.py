"""Who makes it: one package per collaborator of the assets, each a small protocol and its engines."""
