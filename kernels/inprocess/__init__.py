"""measure(): the instrument in the caller's own process, for callables instead of kernel files. It imports torch."""
