"""Plain, validated data that crosses process borders. Any process may import it: no torch, no I/O."""
