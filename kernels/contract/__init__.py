"""What crosses a border between processes: plain data, validated. Any process imports it; it imports no torch and does no I/O."""
