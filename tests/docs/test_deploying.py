"""What the page says about exit codes is what the errors say."""

import re
from pathlib import Path

from onceward import errors

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
CODES = {
    kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.OncewardError)
}


def test_every_exit_code_has_its_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)}
    assert rows == CODES | {0}


def test_supervisors_start_again_what_a_restart_can_mend_and_nothing_else() -> None:
    again = {int(code) for code in re.findall(r"^\| (\d) \| starts it again", PAGE, re.MULTILINE)}
    assert again == {errors.PublishFailed.exit_code} == {3}
    (prevented,) = re.findall(r"RestartPreventExitStatus=(.*)", PAGE)
    (fails,) = re.findall(r"values: \[(.*)\]", PAGE)
    assert {int(code) for code in prevented.split()} == {int(code) for code in fails.split(",")} == CODES - again
