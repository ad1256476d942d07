"""How far a long line for helm is, told at every tenth."""

from fipop.operator.guests.install_progress import InstallProgress


def test_a_long_line_is_told_of_ten_times_and_a_short_one_never() -> None:
    told: list[str] = []
    progress = InstallProgress(told.append)
    for left in range(499, -1, -1):
        progress.note_finished(left)
    assert len(told) == 10
    assert told[0] == "helm is done with 50 of 500 guests"
    assert told[-1] == "helm is done with 500 of 500 guests"
    told.clear()
    for left in range(9, -1, -1):
        progress.note_finished(left)
    assert told == []


def test_the_next_line_is_counted_anew() -> None:
    told: list[str] = []
    progress = InstallProgress(told.append)
    for _ in range(2):
        for left in range(29, -1, -1):
            progress.note_finished(left)
    assert told.count("helm is done with 30 of 30 guests") == 2
