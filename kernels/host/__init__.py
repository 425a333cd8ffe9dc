"""This host, without torch: devices, locks, telemetry, processor, and the commit of this checkout."""
