"""The detached processes that own a model server. Standard library only."""
