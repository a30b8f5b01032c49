"""*Recover*, from outside: whether and when a job that failed is started again, and who does it.

`strategy` decides purely, `history` keeps the lives of a job in its checkpoint, `restarts` puts the two together,
`supervisor` runs the driver as a child process and replaces it.
"""

from onceward.restart.driver_process import kill_session
from onceward.restart.history import How, Life, LifeLog, Reached
from onceward.restart.last_words import first_line
from onceward.restart.restarts import LastWords, Restarts, announce, describe
from onceward.restart.signs import Signs
from onceward.restart.spelling import strategy_from
from onceward.restart.strategy import (
    Decision,
    ExponentialDelay,
    Failure,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartStrategy,
    checked_strategy,
)
from onceward.restart.supervisor import End, Supervisor, SupervisorLimits
from onceward.restart.wire import ToSupervisor

__all__ = [
    "Decision",
    "End",
    "ExponentialDelay",
    "Failure",
    "FailureRate",
    "FixedDelay",
    "GiveUp",
    "How",
    "LastWords",
    "Life",
    "LifeLog",
    "NoRestart",
    "Reached",
    "RestartAfter",
    "RestartStrategy",
    "Restarts",
    "Signs",
    "Supervisor",
    "SupervisorLimits",
    "ToSupervisor",
    "announce",
    "checked_strategy",
    "describe",
    "first_line",
    "kill_session",
    "strategy_from",
]
