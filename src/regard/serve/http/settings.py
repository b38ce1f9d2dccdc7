"""Settings of a service: every limit is one number in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regard.core.errors import BadInput
from regard.modalities.base import Limits

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Settings:
    """Limits of a service and who may use it. Times are in seconds, sizes in bytes."""

    explore: bool = False  # serve the explorer's page and its routes
    token: str | None = None  # clients must send it; None: no token is needed
    allowed_hosts: tuple[str, ...] = ()  # host names of this service, besides localhost and numeric addresses
    cors_origins: tuple[str, ...] = ()  # origins whose pages may send requests (CORS)
    max_body_bytes: int = MIB  # a JSON request
    max_upload_bytes: int = 16 * MIB  # a request with images or recordings
    max_buffered_bytes: int = 256 * MIB  # bodies of all requests that are being read or answered
    max_concurrent_requests: int = 512
    client_timeout: float = 10.0  # to receive a request, or for a client to read an answer
    timeout: float = 30.0  # for an answer, waiting in the queue included
    shutdown_timeout: float = 10.0  # for running requests when the service stops
    max_items: int = 64  # inputs of one request
    max_files: int = 8  # files of one form
    max_characters: int = 20_000  # all texts of one request
    max_pixels: int = 2**25  # all images of one request
    max_audio_seconds: float = 120.0  # all recordings of one request
    max_points: int = 2**18  # all point clouds of one request
    max_beams: int = 16  # beam_size and num_candidates
    max_tokens: int = 32_768  # tokens of all texts of one request x beams
    max_prompt_tokens: int = 4096  # tokens of one prompt that is continued, or of the texts that are inspected
    max_generated_tokens: int = 16_384  # inputs x max_new_tokens x beams or candidates of one request
    max_inspections: int = 8  # that the explorer keeps
    max_inspection_bytes: int = 512 * MIB  # of the explorer's inspections

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise BadInput("The token must consist of visible ASCII characters, without spaces.")

    def input_limits(self) -> Limits:
        """Return the limits of one input."""
        return Limits(self.max_characters, self.max_pixels, self.max_audio_seconds, self.max_points)
