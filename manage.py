#!/usr/bin/env python
import contextlib
import os
import sys

from kernels.host import starting


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
    if not (os.environ.get("SECRET_KEY") or os.environ.get("SECRET_KEY_FILE")):
        from runs.hosting.setup import write_env_file

        write_env_file()
    with starting.imports():
        import django
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line

        with contextlib.suppress(ImproperlyConfigured):  # the command says so
            django.setup()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
