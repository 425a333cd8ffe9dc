"""measure(): the instrument in the caller's process, for callables instead of kernel files. It imports torch."""
