"""Settings, from the environment and .env. An invalid value is refused with a sentence."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import environ
from csp.constants import SELF, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured

from benchsite import env_file, secret_files
from kernels.host import logs

BASE_DIR = Path(__file__).resolve().parent.parent
try:
    secret_files.into_environment()
except secret_files.UnreadableSecret as error:
    raise ImproperlyConfigured(str(error)) from None
env_file.into_environment()
env = environ.Env()

VAR_DIR = Path(env.str("BENCHSITE_VAR", default=str(BASE_DIR / "var")))
DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured("SECRET_KEY is not set: `make up` writes one into .env; or set it yourself")
    SECRET_KEY = "only-for-debugging"

# SITE_URL, where people find the site, decides on hosts, origins, TLS and cookies.
SITE_URL = env.str("SITE_URL", default="").rstrip("/")
_site = urlsplit(SITE_URL)
if SITE_URL and not (
    _site.scheme in ("http", "https") and _site.hostname and f"{_site.scheme}://{_site.netloc}" == SITE_URL
):
    raise ImproperlyConfigured(f"SITE_URL must be an address such as https://bench.example.org, not {SITE_URL!r}")
OWN_HOSTS = ["localhost", "127.0.0.1", "[::1]"]  # health checks ask there
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[]) or ([_site.hostname, *OWN_HOSTS] if SITE_URL else ["*"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[]) or ([SITE_URL] if SITE_URL else [])
OVER_TLS = _site.scheme == "https"
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = OVER_TLS
SECURE_REDIRECT_EXEMPT = [r"^healthz", r"^metrics$"]  # asked from within, without TLS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if OVER_TLS else 0
# Not said by HSTS: subdomains (W005) and browsers' lists (W021). Other sites of the domain may have no TLS.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")
"""What opens /metrics, and the names of agents in /healthz. Without one, only this host may read /metrics."""

INSTALLED_APPS = [
    "whitenoise.runserver_nostatic",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "axes",
    "django_htmx",
    "csp",
    "runs",
]
MIDDLEWARE = [
    "runs.observing.Observed",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "runs.api.files.TokensOpenFiles",
    "runs.access.LoggedInOrShared",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "benchsite.urls"
WSGI_APPLICATION = "benchsite.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "runs.access.of_person",
            ],
            "builtins": ["runs.templatetags.figures"],
        },
    }
]

DATABASES = {"default": env.db_url("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'db.sqlite3'}")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # With Django's defaults, a transaction that reads and then writes fails if another writer was in between.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    DATABASES["default"]["TEST"] = {"NAME": env.str("TEST_DATABASE", default=str(VAR_DIR / "test.sqlite3"))}
else:
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
    DATABASES["default"].setdefault("CONN_MAX_AGE", 60)  # PostgreSQL starts a process for each connection
    DATABASES["default"].setdefault("CONN_HEALTH_CHECKS", True)
CACHES = {  # of all web processes of this host: counts of wrong passwords and of requests, drawings of status pages
    "default": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": VAR_DIR / "cache",
        "OPTIONS": {
            "MAX_ENTRIES": 5000
        },  # when it is full it forgets any of them, also who waits after wrong passwords
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

EMBEDDED_BROKER = f":{env.str('BROKER_PASSWORD', default='')}@127.0.0.1:{env.int('BROKER_PORT', default=6379)}/0"
REDIS_URL = env.str("REDIS_URL", default="") or f"redis://{EMBEDDED_BROKER}"
if not REDIS_URL.startswith(("redis://", "rediss://")):
    raise ImproperlyConfigured(f"REDIS_URL must begin with redis:// or rediss://, not {REDIS_URL.split(':')[0]!r}")


def _days(name: str) -> int | None:
    """A number of days; None, for ever, if it is not set."""
    given = env.str(name, default="").strip()
    if given and not (given.isdecimal() and int(given)):
        raise ImproperlyConfigured(
            f"{name} must be a number of days, 1 or more, not {given!r}; leave it out to keep all"
        )
    return int(given) if given else None


CONFIRM_LEADERS = env.bool("CONFIRM_LEADERS", default=False)
"""Whether the site measures leaders again, to confirm them, on devices with nothing to do."""
KEEP_SAMPLES_DAYS, KEEP_SHARES_DAYS = _days("KEEP_SAMPLES_DAYS"), _days("KEEP_SHARES_DAYS")
"""What runs/pipeline/keeping.py deletes when it is older."""

SENDS_MAIL = bool(env.str("EMAIL_URL", default=""))
if SENDS_MAIL:
    vars().update(env.email_url("EMAIL_URL"))
else:
    EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default="") or f"benchsite@{_site.hostname or 'localhost'}"
try:
    WEBHOOK_NETWORKS = [ip_network(one) for one in env.list("WEBHOOK_NETWORKS", default=[])]
except ValueError as error:
    raise ImproperlyConfigured(f"WEBHOOK_NETWORKS must name networks such as 10.0.0.0/8: {error}") from None
"""Networks that are not public and that webhooks may reach all the same."""

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "runs.logins.Accounts"]
# Wrong passwords, counted in the cache: runs/logins.py says of what.
AXES_HANDLER = "runs.logins.Handler"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=10)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_CALLABLE = "runs.logins.locked_out"
AXES_USERNAME_CALLABLE = "runs.logins.name_of"
AXES_CLIENT_IP_CALLABLE = "runs.logins.address_of"
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "frame-ancestors": ["'none'"],
        "form-action": [SELF],
        "base-uri": [SELF],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

LOGGING = logs.configuration()
