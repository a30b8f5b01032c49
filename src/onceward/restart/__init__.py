"""*Recover*, from outside: whether and when a job that failed is started again, and who does it.

`strategy` decides purely, `history` keeps the lives of a job in its checkpoint, `restarts` puts the two together,
`supervisor` runs the driver as a child process and replaces it.
"""

from onceward.restart.driver_process import kill_session
from onceward.restart.exit_report import ExitReport, first_line
from onceward.restart.history import How, Life, LifeLog, Reached
from onceward.restart.notifier import Notifier
from onceward.restart.restarts import Restarts, announce, describe
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
from onceward.restart.strategy_text import strategy_from
from onceward.restart.supervisor import End, Supervisor, SupervisorLimits
from onceward.restart.wire import ToSupervisor

__all__ = [
    "Decision",
    "End",
    "ExitReport",
    "ExponentialDelay",
    "Failure",
    "FailureRate",
    "FixedDelay",
    "GiveUp",
    "How",
    "Life",
    "LifeLog",
    "NoRestart",
    "Notifier",
    "Reached",
    "RestartAfter",
    "RestartStrategy",
    "Restarts",
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
