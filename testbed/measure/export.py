"""A run as tables that other programs read: Parquet or CSV, one file a table, and the manifest beside them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import TestbedError
from testbed.measure.downloads import downloads
from testbed.measure.files import give_to_invoker, store_error, write_atomically
from testbed.measure.reader import MANIFEST, RunReader

if TYPE_CHECKING:
    import pyarrow

Format = Literal["parquet", "csv"]
Type = Literal["int", "float", "text", "bool"]
Row = tuple[Any, ...]
_BATCH = 50_000


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns, and its rows as they are read."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    rows: Iterable[Row]


def tables(run: RunReader) -> list[Table]:
    """The tables of a run. Times ``t`` and the like are seconds since its start, ``wall`` is since the epoch; what an
    event or a step has beside that is JSON in ``detail``. A time that there is not, and a value that there is not
    (no answer came), is missing."""
    wall = _wall(run)
    return [
        Table(
            "events",
            (("id", "int"), ("t", "float"), ("wall", "float"), ("kind", "text"), ("node", "text"), ("detail", "text")),
            ((e.id, e.t, wall + e.t, e.kind, e.node, _json(e.detail)) for e in run.events()),
        ),
        Table("samples", (("t", "float"), ("series", "text"), ("node", "text"), ("value", "float")), _samples(run)),
        Table(
            "downloads",
            (
                ("step", "text"),
                ("client", "text"),
                ("started", "float"),
                ("first_byte", "float"),
                ("last_byte", "float"),
                ("ended", "float"),
                ("bytes", "int"),
                ("outcome", "text"),
                ("instance", "text"),
            ),
            (
                (d.step, d.client, d.started, d.first_byte, d.last_byte, d.ended, d.bytes, d.outcome, d.instance)
                for d in downloads(run)
            ),
        ),
        Table(
            "steps",
            (
                ("step", "text"),
                ("start", "float"),
                ("end", "float"),
                ("complete", "bool"),
                ("repeat", "int"),
                ("detail", "text"),
            ),
            ((s.name, s.start, s.end, s.complete, s.repeat, _json(dict(s.detail))) for s in run.steps()),
        ),
    ]


def export(run: RunReader, folder: Path, format: Format = "parquet") -> list[Path]:
    """Write the tables and the manifest into ``folder``, in the place of what an earlier export left there.

    Each file is whole or not there. TestbedError if the folder cannot be written, or pyarrow is missing for Parquet.
    """
    writer = _Parquet if format == "parquet" else _Csv
    if format == "parquet":
        _pyarrow()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [_write(table, folder / f"{table.name}.{format}", writer) for table in tables(run)]
    except OSError as error:
        raise store_error(error, folder) from error
    manifest = folder / MANIFEST
    write_atomically(manifest, (run.path / MANIFEST).read_text(encoding="utf-8"))
    written.append(manifest)
    give_to_invoker(folder, *written)
    return written


def _write(table: Table, path: Path, writer: type[_Parquet] | type[_Csv]) -> Path:
    beside = path.with_name(f".{path.name}.new")
    try:
        with writer(beside, table.columns) as file:
            for batch in _batches(table.rows):
                file.write(batch)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _samples(run: RunReader) -> Iterator[Row]:
    """Series by series, so that one alone need fit into memory."""
    for series, node in run.series():
        for sample in run.samples(series, node):
            yield sample.t, series, sample.node, None if math.isnan(sample.value) else sample.value


def _wall(run: RunReader) -> float:
    clock = run.manifest.get("clock") or {}
    return float(clock.get("wall", math.nan))


def _json(detail: Any) -> str:
    return json.dumps(detail, ensure_ascii=False)


class _Csv(AbstractContextManager["_Csv"]):
    """RFC 4180, UTF-8, a line of names first. What is missing is empty."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, Type]]) -> None:
        self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115 - closed by __exit__
        self._csv = csv.writer(self._file)
        self._csv.writerow([name for name, _ in columns])

    def write(self, rows: Sequence[Row]) -> None:
        self._csv.writerows(rows)

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Parquet(AbstractContextManager["_Parquet"]):
    """With pyarrow, compressed by zstd, a row group a batch."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, Type]]) -> None:
        import pyarrow
        import pyarrow.parquet

        types = {
            "int": pyarrow.int64(),
            "float": pyarrow.float64(),
            "text": pyarrow.string(),
            "bool": pyarrow.bool_(),
        }
        self._schema: pyarrow.Schema = pyarrow.schema([(name, types[kind]) for name, kind in columns])
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow

        columns = [pyarrow.array([row[at] for row in rows], type=field.type) for at, field in enumerate(self._schema)]
        self._file.write_table(pyarrow.Table.from_arrays(columns, schema=self._schema))

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise TestbedError(
            "Parquet needs the package pyarrow, which is not installed",
            remedy="install it (pip install 'testbed[parquet]'; `make setup` does so), or export as CSV: --format csv",
        ) from error
