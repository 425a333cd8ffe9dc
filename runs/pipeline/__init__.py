"""What moves runs along: dispatcher, recorder, reaper, importer. Celery tasks and commands call it."""
