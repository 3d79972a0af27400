"""Loggers: levels, files, formats, silence at import."""

import logging
import subprocess
import sys

import pytest

from megengine import check_misc, enable_debug_log
from megengine import logger as mge_logger


@pytest.fixture(autouse=True)
def restore():
    level, file = mge_logger._default_level, mge_logger.MegEngineLogFormatter.log_fout
    yield
    mge_logger.set_log_level(level)
    mge_logger.set_log_file(None if file is None else file)


def test_a_logger_writes_its_message_to_stderr(capsys):
    mge_logger.get_logger("test.stderr").info("hello %d", 7)
    assert "hello 7" in capsys.readouterr().err


def test_the_same_name_gives_the_same_logger_with_one_handler():
    first = mge_logger.get_logger("test.same")
    assert mge_logger.get_logger("test.same") is first
    assert len(first.handlers) == 1 and first in mge_logger._all_loggers


def test_the_level_applies_to_existing_loggers_unless_told_otherwise():
    logger = mge_logger.get_logger("test.level")
    mge_logger.set_log_level("ERROR")
    assert logger.level == logging.ERROR
    mge_logger.set_log_level(logging.DEBUG, update_existing=False)
    assert logger.level == logging.ERROR
    assert mge_logger.get_logger("test.level.new").level == logging.DEBUG


def test_an_unknown_level_names_the_valid_ones():
    with pytest.raises(ValueError, match="DEBUG.*'LOUD'"):
        mge_logger.set_log_level("LOUD")


def test_a_log_file_gets_full_lines_without_colours(tmp_path):
    path = tmp_path / "log.txt"
    mge_logger.set_log_file(str(path), mode="w")
    mge_logger.get_logger("test.file").warning("to the file")
    text = path.read_text()
    assert "test_logger.py:test.file] WRN to the file" in text and "\x1b" not in text


def test_no_log_file_any_more_after_none(tmp_path):
    mge_logger.set_log_file(tmp_path / "log.txt")
    mge_logger.set_log_file(None)
    mge_logger.get_logger("test.nofile").warning("lost")
    assert (tmp_path / "log.txt").read_text() == ""


def test_an_exception_comes_with_its_traceback(capsys):
    try:
        raise KeyError("inner")
    except KeyError:
        mge_logger.get_logger("test.exception").exception("outer")
    text = capsys.readouterr().err
    assert "outer" in text and "KeyError: 'inner'" in text


def test_long_messages_are_cut_in_the_middle(capsys):
    mge_logger.get_logger("test.long").info("\n".join(map(str, range(1000))))
    text = capsys.readouterr().err
    assert "744 lines left out" in text and text.rstrip().endswith("999")


@pytest.mark.filterwarnings("ignore:the level of the native runtime")
def test_the_native_level_is_restored_after_a_block():
    before = mge_logger.set_mgb_log_level("ERROR")
    with mge_logger.replace_mgb_log_level("DEBUG"):
        assert mge_logger._mgb_level == logging.DEBUG
    assert mge_logger.set_mgb_log_level(before) == logging.ERROR


def test_a_counted_message_comes_once(capsys):
    logger = mge_logger.get_logger("test.count")
    for _ in range(3):
        mge_logger.call_countlog_func(logger.info, 1, "only once")
    assert capsys.readouterr().err.count("only once") == 1


def test_importing_prints_nothing():
    done = subprocess.run(
        [sys.executable, "-c", "import megengine.logger, megengine.data"], capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_lines_of_the_native_runtime_are_marked():
    record = logging.LogRecord("megbrain", logging.WARNING, __file__, 1, "low on %s", ("memory",), None)
    assert "[mgb] " in (line := mge_logger.MegBrainLogFormatter().format(record)) and line.endswith("low on memory")
    assert "[mgb]" not in mge_logger.MegEngineLogFormatter().format(record)


def test_colours_are_for_terminals(monkeypatch):
    class Stream:
        def __init__(self, answer):
            self.isatty = answer

    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "broken", (), None)
    for answer, wanted in ((lambda: True, True), (lambda: False, False), (None, False)):
        monkeypatch.setattr(sys, "stderr", Stream(answer) if answer else object())
        assert mge_logger.stderr_is_terminal() is wanted
        assert ("\x1b[" in mge_logger.MegEngineLogFormatter().format(record)) is wanted


@pytest.mark.filterwarnings("ignore:the level of the native runtime")
def test_debug_messages_can_be_switched_on():
    log = mge_logger.get_logger("of_debug")
    before, native = log.level, mge_logger.set_mgb_log_level(logging.ERROR)
    try:
        assert not log.isEnabledFor(logging.DEBUG)
        enable_debug_log()
        assert log.isEnabledFor(logging.DEBUG)
        assert mge_logger.set_mgb_log_level(native) == logging.DEBUG
    finally:
        mge_logger.set_log_level(before)
        mge_logger.set_mgb_log_level(native)


def test_what_makes_programs_slow_is_logged(monkeypatch):
    from megengine import _core

    said = []
    log = mge_logger.get_logger("megengine.reports.installation")
    monkeypatch.setattr(log, "warning", lambda text, *values: said.append(text % values))
    check_misc()
    assert not said
    monkeypatch.setattr(_core, "backends", lambda: [])
    monkeypatch.setattr(_core, "thread_count", lambda: 4096)
    check_misc()
    assert ["no kernel compiler" in said[0], "4096 threads" in said[1]] == [True, True]
