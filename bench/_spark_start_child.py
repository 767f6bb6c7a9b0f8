"""A program that uses Spark once: starts a session, runs a query, then one on a topic. Prints the
duration of each as JSON.

Its arguments are the contender, the address of its server, the topic, and the connector's jars
separated by commas, or nothing.
"""

from __future__ import annotations

import json
import sys
import time

from _spark_room import CONF, master, touch

SMALL_ROWS = 1000


def main() -> None:
    contender, address, topic, jars = sys.argv[1:]
    begin_s = time.monotonic()
    if contender == "kafka":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master())
        for key, value in {
            **CONF,
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        options = {"kafka.bootstrap.servers": address, "subscribe": topic, "includeHeaders": "true"}
        source = spark.read.format("kafka")
    else:
        from orbitmq.spark.runtime import session

        spark = session(master(), "bench", CONF)
        options = {"nameServer": address, "subscribe": topic}
        source = spark.read.format("rocketmq")
    up_s = time.monotonic()
    spark.range(1000).selectExpr("sum(id)").collect()
    query_s = time.monotonic()
    touch(source.options(**options).load(), SMALL_ROWS)
    end_s = time.monotonic()
    times = {
        "session_s": up_s - begin_s,
        "first_query_s": query_s - up_s,
        "first_read_s": end_s - query_s,
        "all_s": end_s - begin_s,
    }
    print(json.dumps(times))


if __name__ == "__main__":
    main()
