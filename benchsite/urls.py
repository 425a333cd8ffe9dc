from django.contrib import admin
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from django.views.generic import RedirectView

handler404 = "runs.views.not_found.not_found"
handler500 = "runs.api.problems.fault"
handler403 = "runs.views.not_found.forbidden"
urlpatterns = [
    path("admin/login/", login_not_required(RedirectView.as_view(pattern_name="login", query_string=True))),
    path("admin/", admin.site.urls),
    path("accounts/login/", auth.LoginView.as_view(), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
    path("accounts/password_change/", auth.PasswordChangeView.as_view(), name="password_change"),
    path("accounts/password_change/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("", include("runs.urls")),
]
