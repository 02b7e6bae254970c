"""Fields of a model's configuration that make `transformers` download or run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# Fields for remote classes, pipelines and kernels from the hub, and for quantizers, which import a package by name.
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


def reject_code(config: Mapping[str, object], *, name: str = "config") -> None:
    """Raise if a configuration, or one nested in it, has a field that refers to code.

    A field such as `attn_implementation` refers to code only if its value contains a slash: the value is then the name
    of a kernel repository on the hub, otherwise a word such as `eager`.
    """
    for field, value in _fields(config):
        implementation = "_implementation" in field and any("/" in word for word in _words(value))
        if implementation or (field in CODE and value):
            raise ValueError(
                f"{name} must have no field that makes transformers download or run code, got {field} = "
                f"{str(value)[:60]!r}: pass trust=True (--trust) if you trust this code."
            )


def _fields(value: object) -> Iterator[tuple[str, object]]:
    """Yield all fields of nested mappings and lists, without recursion."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Mapping):
            for field, content in part.items():
                yield str(field), content
                stack.append(content)
        elif isinstance(part, (list, tuple)):
            stack.extend(part)


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, content in _fields(value):
        if isinstance(content, str):
            yield content
