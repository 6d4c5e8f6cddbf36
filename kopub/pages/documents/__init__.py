"""A folder of documents, PDFs and images, as shards of page images."""
