"""One writer at a time for each table: by a lock file on a local disk, by a lock object on object storage."""
