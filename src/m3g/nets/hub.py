"""Test of whether the Hugging Face hub is reachable, with one request, because its client retries for half a minute."""

from __future__ import annotations

from m3g import _checks

SECONDS = 5.0  # timeout of the request


def reachable() -> bool:
    """Return whether the hub responds within `SECONDS`; the client's session respects proxies and mirrors."""
    hub = _checks.extra("huggingface_hub", "train")
    if hub.constants.HF_HUB_OFFLINE:
        return False
    try:
        hub.get_session().head(hub.constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # the error types depend on the client's version
        return False
    return True
