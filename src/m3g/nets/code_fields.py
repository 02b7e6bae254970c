"""Fields of a model's configuration that make `transformers` download or run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# Remote classes, pipelines, kernels of the hub, quantizers (which import packages that the configuration names).
CODE = (
    "auto_map",
    "custom_generate",
    "custom_object_save",
    "custom_pipelines",
    "kernel_config",
    "quantization_config",
    "trust_remote_code",
    "use_kernels",
)


def refuse_code(config: Mapping[str, object], *, name: str = "config") -> None:
    """Reject a configuration, or one nested in it, with a field that refers to code.

    `attn_implementation` and fields like it are words such as `eager`; with a slash they name a repository of kernels.
    """
    for field, value in _fields(config):
        implementation = "_implementation" in field and any("/" in word for word in _words(value))
        if implementation or (field in CODE and value):
            raise ValueError(
                f"{name} must have no field that makes transformers download or run code, got {field} = "
                f"{str(value)[:60]!r}: pass trust=True (--trust) if you know and trust it."
            )


def _fields(value: object) -> Iterator[tuple[str, object]]:
    """Yield all fields of nested mappings and lists, without recursion."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            for field, content in part.items():
                yield str(field), content
                waiting.append(content)
        elif isinstance(part, (list, tuple)):
            waiting.extend(part)


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, content in _fields(value):
        if isinstance(content, str):
            yield content
