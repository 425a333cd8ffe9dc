import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
application = get_wsgi_application()

import benchsite.urls  # noqa: E402, F401  # all pages now, before workers are forked, and not with the first request
