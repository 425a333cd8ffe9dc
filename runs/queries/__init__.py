"""What pages ask of the database: one question a file."""
