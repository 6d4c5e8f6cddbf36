"""What owns a model server: a detached process, standard library only."""
