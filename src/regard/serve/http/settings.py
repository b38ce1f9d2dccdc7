"""What a service allows: how much, how long, from whom. Every limit is one number with one meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regard.core.errors import BadInput

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Settings:
    """Limits of a service. Times are seconds, sizes bytes."""

    explore: bool = False  # the page and its routes
    token: str | None = None  # whoever asks must know it; None: everybody may ask
    allowed_hosts: tuple[str, ...] = ()  # names by which it may be called, besides localhost and numeric addresses
    cors_origins: tuple[str, ...] = ()  # of pages of others that may ask (CORS); none by default
    max_body_bytes: int = MIB  # of a JSON request
    max_upload_bytes: int = 16 * MIB  # of a picture or a sound
    max_buffered_bytes: int = 256 * MIB  # of all requests that are being read or answered
    max_concurrent_requests: int = 512  # requests at a time
    client_timeout: float = 10.0  # for a client to send what it began to send, or to take what it is sent
    timeout: float = 30.0  # for an answer, waiting included
    shutdown_timeout: float = 10.0  # for answers that are under way when the service is told to stop
    max_characters: int = 20_000  # of all texts of one request
    max_generated_tokens: int = 16_384  # tokens that one request may have written: prompts x tokens x samples or beams
    max_pixels: int = 2**25  # of a picture
    max_audio_seconds: float = 120.0  # of a sound
    max_inspections: int = 8  # that the explorer keeps
    max_inspection_bytes: int = 512 * MIB  # what they may hold

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise BadInput("a token is made of ASCII characters, without spaces")
