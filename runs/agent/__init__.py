"""The agent: one Celery worker per device. It has the broker and a journal; it has no database and no Django."""
