"""Ranks that wait, that meet somebody else, or that nobody meets: each is one sentence within seconds."""

from __future__ import annotations

import socket

import pytest
from processes import WORKER, Run, free_port, rank_name, train_arguments, wait_until

pytestmark = [pytest.mark.binary, pytest.mark.slow]

FIRST_WORD_S = 10


def place(rank, port, host="127.0.0.1"):
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(port)}


def start(tmp_path, rank, port, *more, host="127.0.0.1"):
    folder = tmp_path / f"{rank}.{port}.{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return Run([WORKER, *train_arguments(*more, steps=2, dp=1)], folder, place(rank, port, host))


def listener():
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def first_word(run):
    return wait_until(lambda: run.err, "a word", FIRST_WORD_S)


def test_a_run_whose_ranks_do_not_come_says_so_and_ends(tmp_path):
    port = free_port()
    with start(tmp_path, 0, port, "--rendezvous-timeout", 7) as run:
        notice = f"trireme-worker: 1 of 2 ranks have come to 127.0.0.1:{port}; it waits for rank 1, at most 7 s\n"
        assert first_word(run) == notice
        assert run.wait() == 1
        assert run.err == (
            f"{notice}{rank_name(1)} was lost: did not connect within 7 s\n{rank_name(0)} was in its start\n"
        )


def test_a_rank_whose_first_rank_does_not_come_says_so_and_ends(tmp_path):
    port = free_port()
    with start(tmp_path, 1, port, "--rendezvous-timeout", 7) as run:
        refused = f"cannot connect to 127.0.0.1:{port}: Connection refused"
        assert first_word(run) == f"trireme-worker: {refused}\n"
        assert run.wait() == 1
        assert run.err == f"trireme-worker: {refused}\n{rank_name(1)}: {refused}, for 7 s\n"


def test_a_rank_that_comes_late_is_waited_for(tmp_path):
    port = free_port()
    with start(tmp_path, 0, port) as first:
        first_word(first)
        with start(tmp_path, 1, port) as second:
            assert second.wait() == 0, second.err
            assert first.wait() == 0, first.err


def test_a_port_that_is_taken_is_one_sentence(tmp_path):
    with listener() as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, 0, port) as run:
            assert run.wait() == 1
            assert run.err == (
                f"{rank_name(0)}: cannot listen on 127.0.0.1:{port}: Address already in use; another program or "
                "job may have this port: set MASTER_PORT to another one for all ranks\n"
            )


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program has the port {place}: a control frame announces "),
        (b"", "{place} closed the connection of rank 1: the token is that of another run, or the port belongs to"),
    ],
    ids=["talks", "closes"],
)
def test_another_program_at_the_port_is_one_sentence(tmp_path, answer, sentence):
    with listener() as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, 1, port) as run:
            connection = taken.accept()[0]
            connection.recv(1)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            assert run.wait() == 1
            said = run.err
            connection.close()
    assert said.startswith(f"{rank_name(1)}: {sentence.format(place=f'127.0.0.1:{port}')}")
    assert said.count("\n") == 1


def test_another_program_that_says_nothing_is_one_sentence(tmp_path):
    with listener() as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, 1, port, "--rendezvous-timeout", 6) as run:
            silent = f"127.0.0.1:{port} does not answer rank 1"
            assert first_word(run) == f"trireme-worker: {silent}\n"
            assert run.wait() == 1
            assert run.err.splitlines()[1:] == [f"{rank_name(1)}: {silent}, for 6 s"]


def test_a_stranger_at_the_port_is_named_and_changes_nothing(tmp_path):
    port = free_port()
    with start(tmp_path, 0, port) as first:
        stranger = wait_until(lambda: connected(port), "the port")
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert first_word(first) == (
            f"trireme-worker: a connection from 127.0.0.1 to 127.0.0.1:{port} was closed: what it sent is no frame "
            "of Trireme\n"
        )
        stranger.close()
        with start(tmp_path, 1, port) as second:
            assert second.wait() == 0, second.err
            assert first.wait() == 0, first.err


def connected(port):
    try:
        return socket.create_connection(("127.0.0.1", port))
    except ConnectionRefusedError:
        return None


def test_a_second_job_on_a_port_is_refused_and_the_first_goes_on(tmp_path):
    port = free_port()
    many = ("--lr", 1e-4)
    with start(tmp_path, 0, port, *many) as first:
        connected_once = wait_until(lambda: connected(port), "the port")
        connected_once.close()
        with start(tmp_path, 0, port, *many) as other:
            assert other.wait() == 1
            assert "Address already in use; another program or job may have this port" in other.err
        with start(tmp_path, 1, port, *many) as second:
            assert second.wait() == 0, second.err
            assert first.wait() == 0, first.err


@pytest.mark.parametrize(
    ("interface", "sentence"),
    [("nowhere0", "--interface: this host has no interface nowhere0; it has lo"), ("", "--interface: it is empty")],
)
def test_an_interface_that_is_not_there_is_one_sentence(tmp_path, interface, sentence):
    with start(tmp_path, 1, free_port(), "--interface", interface) as run:
        assert run.wait() == 2
        assert run.err.startswith(f"trireme-worker: {sentence}")
        assert run.err.count("\n") == 1
