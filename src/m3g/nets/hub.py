"""Is there a connection to the Hugging Face hub? One short question, before a client that retries for half a minute."""

from __future__ import annotations

from m3g import _checks

SECONDS = 5.0


def reachable() -> bool:
    """Whether the hub answers within some seconds, through the client's own session: proxies and mirrors count."""
    hub = _checks.extra("huggingface_hub", "train")
    if hub.constants.HF_HUB_OFFLINE:
        return False
    try:
        hub.get_session().head(hub.constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # the client has changed its library, and each has its own errors: any of them is a no
        return False
    return True
