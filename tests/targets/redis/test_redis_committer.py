"""The committer in Redis, held to the contract by the suite for plain write-ahead sinks, on a server and a cluster."""

import pickle

import pytest
from shapes import Reader

from onceward.committers import RedisCheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import Generation, JobIdentity, JobName, SinkName
from onceward.testing import FakeWriteAheadSink, MemoryTarget
from onceward.testing.conformance import WriteAheadConformance
from onceward.testing.servers import RedisCluster, RedisServer

JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
SINK = SinkName("mail")


class TestRedisCommitter(WriteAheadConformance):
    @pytest.fixture(autouse=True)
    def _server(self, server: RedisServer) -> None:
        self.url, self.target = server.url, MemoryTarget()

    def make_sink(self, name: str = "sink") -> FakeWriteAheadSink:
        sink = FakeWriteAheadSink(self.target, name=name)
        sink.committer = RedisCheckpointCommitter(self.url)
        return sink

    def read_rows(self) -> list[dict[str, object]]:
        return self.target.rows

    def opened(self) -> RedisCheckpointCommitter:
        committer: RedisCheckpointCommitter = pickle.loads(pickle.dumps(RedisCheckpointCommitter(self.url)))
        committer.open(JOB, SINK)
        return committer

    def test_forgetting_goes_up_to_the_epoch_and_no_further(self) -> None:
        for epoch in (8, 9, 10):
            self.opened().commit_checkpoint(0, epoch)
        self.opened().forget(10)
        assert [self.opened().is_checkpoint_committed(0, epoch) for epoch in (9, 10)] == [False, True]

    def test_a_committer_that_is_not_open_says_so(self) -> None:
        with pytest.raises(OncewardError, match="before it was opened"):
            RedisCheckpointCommitter(self.url).commit_checkpoint(0, 7)


class TestRedisCommitterOnACluster(TestRedisCommitter):
    @pytest.fixture(autouse=True)
    def _server(self, cluster: RedisCluster) -> None:
        self.url, self.target = cluster.url, MemoryTarget()


def test_its_keys_say_whose_they_are(server: RedisServer, reader: Reader) -> None:
    committer = RedisCheckpointCommitter(server.url)
    committer.open(JOB, SinkName("a:b {c}"))
    committer.commit_checkpoint(3, 7)
    assert reader.client.keys() == [b"onceward:checkpoints:page%20views:aaaaaaaa:a%3Ab%20%7Bc%7D"]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://host", {}),
        ("redis://:hush/quiet@host", {}),
        ("redis://host", {"prefix": ""}),
        ("redis://host", {"prefix": "a{b}"}),
        ("redis://host", {"timeout_s": 0}),
    ],
)
def test_wrong_options_are_refused(url: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RedisCheckpointCommitter(url, **options)
    assert refused.value.hint
    assert "quiet" not in str(refused.value)
