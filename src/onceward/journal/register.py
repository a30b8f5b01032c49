"""The write-once register that fences drivers: manifests `N.t`, reservations of a takeover, and their fates.

Interleavings that matter (Z a paused driver, D one that takes over, P whoever publishes):

- Z and D both create manifest `N.0`: one create wins, the loser stops.
- D reserves `N.1`, Z decides N, P publishes: P creates fate `refused` first, D's create of `taken` loses, D aborts
  nothing.
- D reserves `N.1` and creates `taken`, Z decides N: P finds `taken`, manifest `N.0` is void, only `N.1` counts.
- D dies between reservation and fate: the next taker uses `N.2`, or P refuses `N.1`. Nothing waits for D.
- D has `taken` of `N.5` and found N undecided afterwards: below 5 everything is void for good, and may go. A driver E
  that listed the register before may then reserve `N.3` anew; it finds `N.5` taken before it stages or writes anything,
  and what it aborts has a lower number than 3, so no manifest that counts names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.identity import RunId
from onceward.journal.model import Manifest
from onceward.journal.sealed import seal, unseal

FOLDER: Final = "manifests"
_NAME = re.compile(r"([0-9]+)\.([0-9]+)\.(json|reserved|fate)")


class Fate(Enum):
    """What became of a reservation, once and for all."""

    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """Which takeover numbers of an epoch have a manifest, a reservation, a fate."""

    manifests: frozenset[int] = frozenset()
    reserved: frozenset[int] = frozenset()
    fates: frozenset[int] = frozenset()

    @property
    def highest(self) -> int:
        """The highest takeover number seen, 0 when nobody has taken the epoch over."""
        return max(self.manifests | self.reserved | self.fates, default=0)


class Register:
    """Reads and writes the register; decides nothing."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def epochs(self) -> dict[int, EpochFiles]:
        """Everything in the register, by one listing."""
        found: dict[int, dict[str, set[int]]] = {}
        for name in self._storage.names(FOLDER):
            if match := _NAME.fullmatch(name):
                kinds = found.setdefault(int(match[1]), {"json": set(), "reserved": set(), "fate": set()})
                kinds[match[3]].add(int(match[2]))
        return {
            epoch: EpochFiles(frozenset(kinds["json"]), frozenset(kinds["reserved"]), frozenset(kinds["fate"]))
            for epoch, kinds in found.items()
        }

    def files(self, epoch: int) -> EpochFiles:
        """What the register holds for one epoch."""
        return self.epochs().get(epoch, EpochFiles())

    def create_manifest(self, manifest: Manifest) -> bool:
        """Write it once; False when another driver was first."""
        path = f"{FOLDER}/{manifest.epoch}.{manifest.takeover}.json"
        return self._storage.create(path, seal("manifest", manifest.to_json()))

    def manifest(self, epoch: int, takeover: int) -> Manifest | None:
        """The manifest with this number, None when there is none."""
        path = f"{FOLDER}/{epoch}.{takeover}.json"
        data = self._storage.read(path)
        if data is None:
            return None
        manifest = Manifest.from_json(unseal("manifest", data, path=path), path=path)
        if (manifest.epoch, manifest.takeover) != (epoch, takeover):
            raise DamagedFile(
                f"{path} holds the manifest of epoch {manifest.epoch}.{manifest.takeover}",
                hint="files of the checkpoint were renamed; restore the checkpoint from a backup",
            )
        return manifest

    def reserve(self, epoch: int, takeover: int, run: RunId) -> bool:
        """Claim the right to decide this takeover's fate as `taken`; False when someone else has the number."""
        return self._storage.create(f"{FOLDER}/{epoch}.{takeover}.reserved", seal("reserved", {"run": run}))

    def fate(self, epoch: int, takeover: int) -> Fate | None:
        """The fate that stands, None while it is open."""
        path = f"{FOLDER}/{epoch}.{takeover}.fate"
        data = self._storage.read(path)
        if data is None:
            return None
        try:
            return Fate(unseal("fate", data, path=path).get("fate"))
        except ValueError as error:
            raise DamagedFile(f"{path} holds an unknown fate", hint="upgrade onceward") from error

    def decide_fate(self, epoch: int, takeover: int, fate: Fate) -> Fate:
        """Write `fate` if none stands yet; the one that stands afterwards."""
        while True:
            if self._storage.create(f"{FOLDER}/{epoch}.{takeover}.fate", seal("fate", {"fate": fate.value})):
                return fate
            if (standing := self.fate(epoch, takeover)) is not None:
                return standing
            # The file was there and is gone: the epoch is being settled by another driver, who has read the fate, or a
            # higher takeover has made it void. Creating it once more is harmless: neither is read again.

    def taken(self, epoch: int, files: EpochFiles) -> int:
        """The highest takeover whose fate is `taken`, 0 when there is none: only that manifest counts.

        Read from the top: what is below the first `taken` says nothing any more, and may be damaged. A fate that went
        after it was listed was made void by a higher one, or its epoch is settled: listed anew, that shows.
        """
        for takeover in sorted(files.fates, reverse=True):
            fate = self.fate(epoch, takeover)
            if fate is None:
                return self.taken(epoch, self.files(epoch))
            if fate is Fate.TAKEN:
                return takeover
        return 0

    def valid_manifest(self, epoch: int, files: EpochFiles | None = None) -> Manifest | None:
        """The manifest that counts, as far as anyone has fixed it yet; None while there is none. `files` are what was
        listed of the epoch."""
        return self.manifest(epoch, self.taken(epoch, self.files(epoch) if files is None else files))

    def forget(self, epoch: int) -> None:
        """Remove all of a settled epoch: manifests first, so that a crash leaves no manifest without its fates."""
        self._remove(epoch, self.files(epoch))

    def forget_void(self, epoch: int, taken: int) -> None:
        """Remove what a takeover that stands makes void, so that a crash loop does not fill the folder.

        The newest void manifest stays: it tells that the epoch was tried, and that another driver may be alive.
        """
        files = self.files(epoch)
        tried = max((t for t in files.manifests if t < taken), default=0)
        void = EpochFiles(
            frozenset(t for t in files.manifests if t < tried),
            frozenset(t for t in files.reserved if t < taken),
            frozenset(t for t in files.fates if t < taken),
        )
        self._remove(epoch, void)

    def _remove(self, epoch: int, files: EpochFiles) -> None:
        for suffix, numbers in (("json", files.manifests), ("reserved", files.reserved), ("fate", files.fates)):
            for takeover in numbers:
                self._storage.delete(f"{FOLDER}/{epoch}.{takeover}.{suffix}")
