"""Tests the planning of a pipeline: the columns it uses, and errors of steps with their line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline.plan import plan_text, planned, shown_options
from support.spark.pipelines import pipeline_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """\
name: orders
source: {format: rocketmq, options: {nameServer: "127.0.0.1:1", subscribe: orders, startingOffsets: earliest}}
steps:
  - json: {schema: "id string, shop string, amount double, at timestamp"}
  - filter: amount > 0
  - dedup: {key: [id, tags], within: 10 minutes}
  - window: {time: at, watermark: 1 minute, size: 1 minute, groupBy: [shop], aggregate: {total: sum(amount), orders: count(*)}}
  - sql: select shop, window.start as minute, total, orders from input
sinks:
  - {format: rocketmq, options: {topic: figures}}
  - {format: parquet, path: out/orders, partitionBy: [date]}
checkpoint: out/checkpoint
"""


def columns_read(spark: SparkSession, folder: Path, *settings: str) -> tuple[str, ...]:
    return planned(spark, pipeline_in(folder, TEXT, *settings))[0].columns_read


def test_only_columns_that_are_used_are_read(spark: SparkSession, tmp_path: Path) -> None:
    assert columns_read(spark, tmp_path) == ("tags", "body")
    one = "sinks=[{format: console}]"
    assert columns_read(
        spark,
        tmp_path,
        one,
        "steps=[{sql: select count(*) as n from input where queueId = 1}]",
        "sinks.0.mode=update",
    ) == ("queueId",)
    assert columns_read(
        spark,
        tmp_path,
        one,
        "steps=[{sql: select count(*) as n from input}]",
        "sinks.0.mode=update",
    ) == ("queueOffset",)
    union = (
        "steps=[{sql: 'select topic from (select topic, tags from input union all select keys,"
        " msgId from input)'}]"
    )
    assert {"topic", "keys"} <= set(columns_read(spark, tmp_path, one, union))
    assert len(columns_read(spark, tmp_path, one, "steps=[{filter: queueId = 1}]")) == 18
    topic = "sinks=[{format: rocketmq, options: {topic: odd}}]"
    assert columns_read(spark, tmp_path, topic, "steps=[{filter: queueId = 1}]") == (
        "queueId",
        "keys",
        "tags",
        "body",
        "properties",
    )


def test_a_row_without_a_body_becomes_json(spark: SparkSession, tmp_path: Path) -> None:
    messages, table = planned(spark, pipeline_in(tmp_path, TEXT))
    assert messages.rows.schema.simpleString() == "struct<body:string>"
    assert (
        table.rows.schema.simpleString()
        == "struct<shop:string,minute:timestamp,total:double,orders:bigint,date:date>"
    )
    assert "StreamingRelation" in plan_text(table)
    keyed = planned(
        spark,
        pipeline_in(
            tmp_path,
            TEXT,
            "steps.4.sql=select shop as keys, total, 't' as topic, window from input",
        ),
    )
    assert keyed[0].rows.schema.simpleString() == "struct<keys:string,body:string>"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    pipeline = pipeline_in(
        tmp_path, TEXT, "source.options.accessKey=me", "source.options.secretKey=hidden"
    )
    assert shown_options(pipeline.source)["secretKey"] == "***"
    assert "hidden" not in str(shown_options(pipeline.sinks[0]))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "steps.1.filter=amout > 0",
            (
                "--set steps.1.filter: step 2 (filter): A column, variable, or function parameter"
                " with name `amout` cannot be resolved. Did you mean one of the following?"
                " [`amount`, `at`, `body`, `id`, `shop`]"
            ),
        ),
        (
            "steps.1.filter=amount > > 0",
            (
                "--set steps.1.filter: step 2 (filter): Syntax error at or near '>' (line 1,"
                " position 10 of it)"
            ),
        ),
        (
            "steps.0.json.schema=id strin",
            (
                'pipeline.yaml:4: step 1 (json): Unsupported data type "STRIN" (line 1, position 4'
                " of it)"
            ),
        ),
        (
            "steps.3.window.time=id",
            (
                "pipeline.yaml:6: step 3 (dedup): The event time `id` has the invalid type"
                ' "STRING", but expected "TIMESTAMP"'
            ),
        ),
        (
            "steps.3.window.groupBy=shp",
            (
                "pipeline.yaml:7: step 4 (window): A column, variable, or function parameter with"
                " name `shp` cannot be resolved. Did you mean one of the following? [`shop`, `at`,"
                " `id`, `body`, `flag`]"
            ),
        ),
        (
            "steps.4.sql=drop table orders",
            (
                "--set steps.4.sql: step 5 (sql): Syntax error at or near 'drop' (line 1, position"
                " 1 of it)"
            ),
        ),
        (
            "steps.4.sql=select * from inputs",
            (
                "--set steps.4.sql: step 5 (sql): The table or view `inputs` cannot be found. "
                "Verify the spelling and correctness of the schema and catalog"
            ),
        ),
        (
            "steps.4.sql=select shop, count(*) as n from input group by shop",
            (
                "pipeline.yaml:10: sink rocketmq-figures: Invalid streaming output mode: append."
                " This output mode is not supported for streaming aggregations without watermark on"
                " streaming DataFrames/DataSets"
            ),
        ),
        (
            "steps.4.sql=select 1 as tags, shop from input",
            (
                "pipeline.yaml:10: sink rocketmq-figures: column tags is int but must be string;"
                " cast it"
            ),
        ),
        (
            "sinks.1.partitionBy=city",
            (
                "pipeline.yaml:11: sink parquet-orders: partitionBy has city, but rows have no such"
                " column; they have shop, minute, total, orders"
            ),
        ),
        (
            "steps.4.sql=select shop from input",
            (
                "pipeline.yaml:11: sink parquet-orders: partitionBy has date, but its time column"
                " is ambiguous; set dateOf: column (the columns are shop)"
            ),
        ),
        (
            "sinks.0={format: rocketmq}",
            (
                "--set sinks.0: sink rocketmq: messages have no topic: give the option topic, or a"
                " column topic"
            ),
        ),
    ],
)
def test_what_spark_refuses_is_told_with_its_step_and_line(
    spark: SparkSession, tmp_path: Path, setting: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        planned(spark, pipeline_in(tmp_path, TEXT, setting))
    assert str(caught.value).replace(f"{tmp_path}/", "") == sentence
