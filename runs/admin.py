"""The admin: mostly read-only."""

from django.contrib import admin

from runs.models import Config, Gpu, Kernel, Measurement, RejectedEvent, Run, Session, Share, TierScale, Workload


@admin.register(Run)
class RunAdmin(admin.ModelAdmin):
    list_display = ("id", "title", "state", "gpu", "done", "total", "user", "created_at")
    list_filter = ("state", "gpu")
    search_fields = ("title", "note")


@admin.register(RejectedEvent)
class RejectedEventAdmin(admin.ModelAdmin):
    list_display = ("at", "run", "attempt", "seq", "reason")


admin.site.register([Config, Gpu, Kernel, Measurement, Session, Share, TierScale, Workload])
