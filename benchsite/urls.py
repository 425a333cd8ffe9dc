from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

handler404 = "runs.views.not_found.not_found"
urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/login/", auth.LoginView.as_view(), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
    path("accounts/password_change/", auth.PasswordChangeView.as_view(), name="password_change"),
    path("accounts/password_change/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("", include("runs.urls")),
]
