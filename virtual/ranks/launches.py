"""What a host does ahead of its device: it launches operators, which the device carries out one after the other."""

from dataclasses import dataclass


@dataclass(slots=True)
class Launches:
    """Operators between two places where a rank's host and its device meet, in seconds.

    A device that is free at c, with a host that begins at h, has done them at max(c + ``device``, h + ``lead``); the
    host has launched them at h + ``host``.

    >>> done = Launches()
    >>> done.add(5.0, 2.0); done.add(5.0, 1.0); done
    Launches(host=10.0, device=3.0, lead=11.0)
    """

    host: float = 0.0  # that launching takes
    device: float = 0.0  # that operators take
    lead: float = 0.0  # until all is done, if the device has nothing else to do

    def add(self, host: float, device: float) -> None:
        """Launch one more operator."""
        self.host += host
        self.device += device
        self.lead = max(self.lead, self.host) + device

    def follow(self, later: "Launches") -> None:
        """Launch others behind these."""
        self.lead = max(self.lead + later.device, self.host + later.lead)
        self.host += later.host
        self.device += later.device

    def take(self) -> "Launches":
        """Return what was launched, and begin anew."""
        found = Launches(self.host, self.device, self.lead)
        self.host = self.device = self.lead = 0.0
        return found
