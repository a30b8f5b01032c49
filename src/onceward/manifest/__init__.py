"""The durable record of *stage* and *settle*: who we are, what each epoch staged, who may publish it, what is done."""

from onceward.manifest.diverted import Diversion, Diversions
from onceward.manifest.identity_file import IdentityFile, IdentityRecord
from onceward.manifest.kept import KeptLog, Retention, forget_settled
from onceward.manifest.model import Manifest, SinkEntry, SlotEntry
from onceward.manifest.register import EpochFiles, Fate, Register
from onceward.manifest.resolutions import Kind, Resolution, Resolutions, Resolved
from onceward.manifest.sealed import seal, unseal
from onceward.manifest.settled import Marker, SettledLog, SinkTotal

__all__ = [
    "Diversion",
    "Diversions",
    "EpochFiles",
    "Fate",
    "IdentityFile",
    "IdentityRecord",
    "KeptLog",
    "Kind",
    "Manifest",
    "Marker",
    "Register",
    "Resolution",
    "Resolutions",
    "Resolved",
    "Retention",
    "SettledLog",
    "SinkEntry",
    "SinkTotal",
    "SlotEntry",
    "forget_settled",
    "seal",
    "unseal",
]
