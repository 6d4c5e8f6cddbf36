"""The making of the tables, their staleness and their lineage."""
