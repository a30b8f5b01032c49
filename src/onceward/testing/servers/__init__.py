"""Real servers for tests: started on free loopback ports, with their data in temporary folders, and stopped again.

::

    with PostgresServer() as server:
        sink = PostgresSink(server.url, table="rows")
        server.kill()  # as a power loss would
        server.start()  # the same data, the same port
"""

from onceward.testing.servers.base import Server, ServerMissing
from onceward.testing.servers.kafka import SOON_BACK, KafkaServer
from onceward.testing.servers.mariadb import MariaDBServer, MySQLServer
from onceward.testing.servers.postgres import PostgresServer
from onceward.testing.servers.proxy import Proxy
from onceward.testing.servers.redis import RedisCluster, RedisServer

__all__ = [
    "SOON_BACK",
    "KafkaServer",
    "MariaDBServer",
    "MySQLServer",
    "PostgresServer",
    "Proxy",
    "RedisCluster",
    "RedisServer",
    "Server",
    "ServerMissing",
]
