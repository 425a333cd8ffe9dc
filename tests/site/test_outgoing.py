"""Where webhooks may go: public addresses, and what the settings name. A real server answers on this machine."""

import ipaddress
import socket

import pytest

from runs import outgoing
from runs.models import Delivery, Notice, Webhook
from runs.pipeline.delivering import deliver

PRIVATE = (
    "127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
    "2002:7f00:1::1", "64:ff9b::7f00:1", "ff02::1",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_no_private_address_is_called(address, settings):
    assert not outgoing.is_allowed(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(outgoing.Refused, match="not a public address"):
        outgoing.post(f"http://{host}:8000/", b"{}", {})


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_public_addresses_are_called_and_networks_may_be_named(address, settings):
    assert outgoing.is_allowed(ipaddress.ip_address(address))
    settings.WEBHOOK_NETWORKS = [ipaddress.ip_network("10.0.0.0/8")]
    assert outgoing.is_allowed(ipaddress.ip_address("10.1.1.1")) and outgoing.is_allowed(ipaddress.ip_address(address))
    assert not outgoing.is_allowed(ipaddress.ip_address("127.0.0.1"))


@pytest.mark.parametrize("name", ["2130706433", "0x7f000001", "127.1", "localhost", "017700000001"])
def test_other_spellings_of_this_machine_are_refused_too(name):
    with pytest.raises((outgoing.Refused, OSError)):
        outgoing.post(f"http://{name}/", b"{}", {})


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/", "file:///etc/passwd", "example.org", "https://", "https://a:b@example.org/",
     "https://example.org:99999/", "https://exa mple.org/", "https://example.org/\r\nX: y", "https://[::1", ""],
)  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with pytest.raises(outgoing.Refused):
        outgoing.parsed(url)


def test_a_name_that_changes_its_address_after_the_check_is_not_followed(monkeypatch, receiver, settings):
    """The connection goes to the address that was checked: the name is asked once."""
    asked = []

    def lookup(host, port, *rest, real=socket.getaddrinfo, **more):
        if host != "hooks.example.org":
            return real(host, port, *rest, **more)
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", lookup)
    assert outgoing.post(f"http://hooks.example.org:{receiver.server_port}/x", b"{}", {}) == 204
    assert asked == ["hooks.example.org"]
    assert receiver.got[0][1]["Host"] == f"hooks.example.org:{receiver.server_port}"


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch):
    both = [(socket.AF_INET, 1, 6, "", (one, 443)) for one in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(outgoing.socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(outgoing.Refused, match=r"leads to 10\.0\.0\.1"):
        outgoing.post("https://hooks.example.org/", b"{}", {})


def test_a_webhook_whose_name_became_private_later_is_not_called(owner, receiver, settings):
    webhook, _ = Webhook.make(owner.user, receiver.url, ["run"])
    notice = Notice.objects.create(event="run.ended", key="1", sentence="It ended.", path="/runs/1/")
    Delivery.objects.create(notice=notice, webhook=webhook)
    settings.WEBHOOK_NETWORKS = []
    deliver()
    assert not receiver.got and "not a public address" in Delivery.objects.get().answer
