"""Database queries of pages: one question a file."""
