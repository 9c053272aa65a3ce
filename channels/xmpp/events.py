"""The words of the connection: what it is made of, what can happen to it, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

# -- the values ----------------------------------------------------------------------------------


class State(Enum):
    """Where the connection stands as a whole."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    JOINING = "joining"
    JOINED = "joined"
    BACKING_OFF = "backing_off"
    REFUSED = "refused"
    """The server does not want us, and asking again would only make it worse; a person has to act."""


class Standing(Enum):
    """Where one room stands."""

    WANTED = "wanted"
    """Not entered, and to be entered as soon as it may be tried."""
    ENTERING = "entering"
    CATCHING_UP = "catching up"
    """Entered; what was missed is being read."""
    IN = "in"
    OUT = "out"
    """It does not let us in. The next new session tries again, and so does a start."""
    GONE = "gone"
    """It was destroyed. It is never tried again: joining would make a new room, with us as its owner."""


class Cause(Enum):
    """Why an occupant is out of a room."""

    TECHNICAL = "technical"
    """A fault or a restart of the service, or nobody told us."""
    KICKED = "kicked"
    BANNED = "banned"
    NOT_A_MEMBER = "not a member"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class Room:
    """``failures`` in a row; ``created``: our entering made the room; ``reason`` why it is not entered."""

    address: str
    standing: Standing = Standing.WANTED
    failures: int = 0
    created: bool = False
    reason: str = ""

    @property
    def settled(self) -> bool:
        return self.standing in (Standing.IN, Standing.OUT, Standing.GONE)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. ``base`` and ``cap`` bound the back-off; a link that held ``stable`` seconds starts it anew.

    ``connect``: until the session is there; ``join``: until a room answers; ``confirm``: until a text is
    confirmed; ``receipt``: for a receipt beyond that; ``hold``: how long a text waits for its room;
    ``ping``: between two looks at server and rooms; ``answer``: an answer to those and to queries.
    """

    connect: float = 30.0
    join: float = 30.0
    confirm: float = 30.0
    receipt: float = 10.0
    hold: float = 3600.0
    ping: float = 60.0
    answer: float = 20.0
    base: float = 1.0
    cap: float = 300.0
    stable: float = 60.0


@dataclass(frozen=True, slots=True)
class Connection:
    """``link`` numbers the connections made; ``failures`` counts those in a row that came to nothing or broke;
    ``greeted``: in this session we can be reached for direct chats, and know of all that were missed."""

    rooms: tuple[Room, ...] = ()
    state: State = State.OFFLINE
    greeted: bool = False
    link: int = 0
    failures: int = 0
    reason: str = ""
    timing: Timing = field(default_factory=Timing)

    def room(self, address: str) -> Room | None:
        return next((room for room in self.rooms if room.address == address), None)


# -- events: what happened -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody wants the connection."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nobody wants it any more."""


@dataclass(frozen=True, slots=True)
class OfLink:
    link: int


@dataclass(frozen=True, slots=True)
class BackoffOver(OfLink):
    pass


@dataclass(frozen=True, slots=True)
class ConnectTimedOut(OfLink):
    chance: float


@dataclass(frozen=True, slots=True)
class LinkUp(OfLink):
    """There is a session; ``resumed`` is the one before, with its rooms (XEP-0198)."""

    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Greeted(OfLink):
    """We can be reached, and nothing that was said in direct chats is unknown any more."""


@dataclass(frozen=True, slots=True)
class LinkLost(OfLink):
    """``lasted``: seconds since the session was there, 0 where there was none."""

    reason: str
    chance: float
    lasted: float = 0.0


@dataclass(frozen=True, slots=True)
class LoginRefused(OfLink):
    """Wrong account or password, or no way to log in that is safe."""

    reason: str


@dataclass(frozen=True, slots=True)
class Displaced(OfLink):
    """Another client logged in under our full address. Coming back would displace it in turn, for ever."""

    reason: str


@dataclass(frozen=True, slots=True)
class OfRoom(OfLink):
    room: str


@dataclass(frozen=True, slots=True)
class RoomEntered(OfRoom):
    """``created``: the room was not there before."""

    created: bool = False


@dataclass(frozen=True, slots=True)
class RoomCaughtUp(OfRoom):
    """Nothing that was said in it is unknown any more."""


@dataclass(frozen=True, slots=True)
class RoomRefused(OfRoom):
    """``condition`` is that of the stanza error, ``remote-server-timeout`` where none came."""

    condition: str
    text: str
    chance: float


@dataclass(frozen=True, slots=True)
class RoomLost(OfRoom):
    cause: Cause
    text: str
    chance: float


@dataclass(frozen=True, slots=True)
class RoomRetryDue(OfRoom):
    pass


Event = (
    Started | Stopped | BackoffOver | ConnectTimedOut | LinkUp | Greeted | LinkLost | LoginRefused | Displaced
    | RoomEntered | RoomCaughtUp | RoomRefused | RoomLost | RoomRetryDue
)  # fmt: skip
EVENTS: tuple[type[Event], ...] = (
    Started, Stopped, BackoffOver, ConnectTimedOut, LinkUp, Greeted, LinkLost, LoginRefused, Displaced,
    RoomEntered, RoomCaughtUp, RoomRefused, RoomLost, RoomRetryDue,
)  # fmt: skip

# -- effects: what is to be done -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a link under this number, and give up after ``within`` seconds."""

    link: int
    within: float


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the link, if there is one. ``politely``: close the stream; else the other end may be dead."""

    politely: bool = False


@dataclass(frozen=True, slots=True)
class WaitToConnect:
    link: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Greet:
    """Be available, and read what was missed in direct chats."""


@dataclass(frozen=True, slots=True)
class EnterRoom:
    """Join, and give up after ``within`` seconds."""

    room: str
    within: float


@dataclass(frozen=True, slots=True)
class WaitToEnter:
    room: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Read what was missed in a room."""

    room: str


@dataclass(frozen=True, slots=True)
class HoldOutput:
    """Texts wait. Those under way cannot be confirmed before the room is entered again."""

    rooms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseOutput:
    """Texts go out. ``fresh``: what was under way and has not been seen since did not arrive."""

    rooms: tuple[str, ...]
    fresh: bool


@dataclass(frozen=True, slots=True)
class FailOutput:
    """Texts for these rooms, or all texts, cannot be delivered; ``final``: nor later."""

    rooms: tuple[str, ...] | None
    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Something that a person should know: ``kind`` is ``refused``, ``room out``, ``room created``, ``room
    anonymous`` or ``link``; ``room`` is empty where it is about none."""

    kind: str
    text: str
    room: str = ""


Effect = (
    Connect | Disconnect | WaitToConnect | Greet | EnterRoom | WaitToEnter | CatchUp | HoldOutput | ReleaseOutput
    | FailOutput | Tell
)  # fmt: skip
