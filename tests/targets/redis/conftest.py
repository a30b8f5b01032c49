"""A Redis server that does not wait for the disk (nobody kills it), emptied before every test, and ways to read it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis as driver
from shapes import Reader

from onceward.testing.servers import RedisCluster, RedisServer


@pytest.fixture(scope="session")
def quick_redis(redis: RedisServer) -> Iterator[RedisServer]:
    """Takes the session's server as a proof that there is one to be had."""
    with RedisServer(appendfsync="no") as server:
        yield server


@pytest.fixture
def server(quick_redis: RedisServer) -> RedisServer:
    with driver.Redis.from_url(quick_redis.url) as client:
        client.flushall()
        client.script_flush()
    return quick_redis


@pytest.fixture
def reader(server: RedisServer) -> Iterator[Reader]:
    with driver.Redis.from_url(server.url) as client:
        yield Reader(client)


@pytest.fixture(scope="session")
def quick_cluster(redis: RedisServer) -> Iterator[RedisCluster]:
    with RedisCluster(appendfsync="no") as cluster:
        yield cluster


@pytest.fixture
def cluster(quick_cluster: RedisCluster) -> RedisCluster:
    for node in quick_cluster.nodes:
        with driver.Redis.from_url(node.url) as client:
            client.flushall()
    return quick_cluster


@pytest.fixture
def cluster_reader(cluster: RedisCluster) -> Iterator[Reader]:
    with driver.RedisCluster.from_url(cluster.url) as client:
        yield Reader(client)


@pytest.fixture(autouse=True)
def _expected_failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="onceward")
