"""The durable record of *stage* and *settle*: who we are, what each epoch staged, who may publish it, what is done."""

from onceward.journal.diverted import Diversion, Diversions
from onceward.journal.identity_file import IdentityFile, IdentityRecord, Restored
from onceward.journal.kept import KeptLog, Retention, forget_settled
from onceward.journal.model import Manifest, SinkEntry, SlotEntry
from onceward.journal.register import EpochFiles, Fate, Register
from onceward.journal.resolutions import Kind, Resolution, Resolutions, Resolved
from onceward.journal.sealed import seal, sealed_body, unseal
from onceward.journal.settled import Marker, SettledLog, SinkTotal

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
    "Restored",
    "Retention",
    "SettledLog",
    "SinkEntry",
    "SinkTotal",
    "SlotEntry",
    "forget_settled",
    "seal",
    "sealed_body",
    "unseal",
]
