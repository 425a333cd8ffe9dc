"""The database: one model a file."""

from runs.models.answered import Answered
from runs.models.api_token import ApiToken
from runs.models.audit import Audit
from runs.models.change import Change
from runs.models.claim import Claim, Import
from runs.models.config import Config
from runs.models.gpu import Calibration, Gpu
from runs.models.host import Host
from runs.models.kernel import Kernel, KernelVersion
from runs.models.measurement import Chart, Measurement, Result
from runs.models.newest import Newest
from runs.models.notice import Delivery, MailChoice, Notice, Webhook
from runs.models.person import Person, Role
from runs.models.profile import KernelProfile
from runs.models.run import Environment, RejectedEvent, Run
from runs.models.schedule import Schedule, ScheduledDay
from runs.models.session import Note, Session
from runs.models.share import Share
from runs.models.status_page import StatusPage
from runs.models.submission import Submission
from runs.models.tag import Tag
from runs.models.target import Pin, Target
from runs.models.tier_scale import Tier, TierScale
from runs.models.trial import Trial
from runs.models.workload import Workload

__all__ = [
    "Answered", "ApiToken", "Audit", "Calibration", "Change", "Chart", "Claim", "Config", "Delivery", "Environment",
    "Gpu", "Host", "Import", "Kernel", "KernelProfile", "KernelVersion", "MailChoice", "Measurement", "Newest", "Note", "Notice",
    "Person", "Pin", "RejectedEvent", "Result", "Role", "Run", "Schedule", "ScheduledDay", "Session", "Share",
    "StatusPage", "Submission", "Tag", "Target", "Tier", "TierScale", "Trial", "Webhook", "Workload",
]  # fmt: skip
