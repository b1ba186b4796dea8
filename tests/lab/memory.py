"""A folder that is no disk, so that no one waits for one."""

from __future__ import annotations

import os

IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
"""For `tempfile`'s argument `dir`. A machine without such a folder has None, which means the usual one."""
