"""This host without torch: its devices, their locks and telemetry, its processor, this checkout's commit."""
