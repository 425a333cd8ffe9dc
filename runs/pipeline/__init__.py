"""The pipeline: dispatcher, recorder, reaper, importer. Celery tasks and commands call it."""
