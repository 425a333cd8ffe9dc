"""What was measured as tables and sentences, for a terminal, a page and files."""
