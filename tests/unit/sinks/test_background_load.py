"""Work beside the rows: in order, one at a time, and nothing it raises is lost."""

import threading

import pytest

from onceward.sinks.mysql.background_load import BackgroundLoad


def test_pieces_are_done_in_order_and_one_at_a_time() -> None:
    load, done, at_work = BackgroundLoad(), [], threading.Lock()

    def piece(number: int) -> None:
        assert at_work.acquire(blocking=False), "two at once"
        done.append((number, threading.current_thread() is threading.main_thread()))
        at_work.release()

    for number in range(50):
        load.do(lambda number=number: piece(number))
    load.wait()
    load.close()
    assert done == [(number, False) for number in range(50)]


@pytest.mark.parametrize("then", ["do", "wait"])
def test_what_a_piece_raises_is_raised_by_the_next_call_once(then: str) -> None:
    def fail() -> None:
        raise ValueError("no")

    load = BackgroundLoad()
    load.do(fail)
    with pytest.raises(ValueError, match="no"):
        load.wait() if then == "wait" else load.do(fail)
    load.wait()
    load.close()


def test_closing_waits_for_the_piece_on_its_way() -> None:
    load, may_end, ended = BackgroundLoad(), threading.Event(), []

    def slow() -> None:
        may_end.wait(30)
        ended.append(True)

    load.do(slow)
    threading.Timer(0.05, may_end.set).start()
    load.close()
    assert ended == [True]
    load.close()
