"""Whether the Hugging Face hub can be reached: one request, because its client would retry for half a minute."""

from __future__ import annotations

from m3g import _checks

SECONDS = 5.0


def reachable() -> bool:
    """Whether the hub answers within `SECONDS`, asked by the client's own session, with its proxies and mirrors."""
    hub = _checks.extra("huggingface_hub", "train")
    if hub.constants.HF_HUB_OFFLINE:
        return False
    try:
        hub.get_session().head(hub.constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # which errors there are depends on the client's version; each means no
        return False
    return True
