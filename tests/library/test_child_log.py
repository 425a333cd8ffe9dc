"""A log that is too long keeps its beginning, where a cause often stands, and its end, and says what is between."""

from kernels.parent.log import HEAD_BYTES, LOG_BYTES, Log, head_and_tail


def test_a_short_log_is_whole():
    log = Log()
    log.add(b"first\n")
    log.add(b"last\n")
    assert log.whole() == log.tail() == "first\nlast\n"
    assert head_and_tail(log.whole(), 100) == "first\nlast\n"


def test_a_flood_keeps_its_beginning_and_its_end():
    log = Log()
    log.add(b"the cause\n")
    for _ in range(100):
        log.add(b"x" * 65536)
    log.add(b"the end\n")
    text = log.whole()
    assert text.startswith("the cause\nxxx") and text.endswith("xxx" + "the end\n")
    assert len(text) < HEAD_BYTES + 2 * LOG_BYTES
    assert "bytes before this are not shown]" in text


def test_a_flood_in_one_piece_keeps_both_too():
    log = Log()
    log.add(b"the cause\n" + b"x" * 10**6 + b"the end\n")
    assert log.whole().startswith("the cause\n") and log.whole().endswith("the end\n")


def test_what_is_stored_of_a_run_is_a_quarter_of_beginning_and_three_of_end():
    text = head_and_tail("a" * 500 + "b" * 9000 + "c" * 700, 1000)
    assert text == "a" * 250 + "\n[9200 characters between are not shown]\n" + "b" * 50 + "c" * 700
