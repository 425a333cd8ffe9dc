"""The agent: one Celery worker per device. It has a broker and a journal, but no database and no Django."""
