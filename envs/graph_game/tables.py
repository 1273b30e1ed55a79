"""A user's graphs as records: GraphML or CSV, with the place of each record for messages."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
from refork.envs.forkable import BadInput


class Record(NamedTuple):
    """One node, edge or row: where it stands, and its values by column; empty ones are left out."""

    where: str
    values: dict[str, Any]


@dataclass(frozen=True)
class GraphRecords:
    """`nodes` have an `id`, `edges` a `source` and a `target`, all texts."""

    where: str
    nodes: list[Record]
    edges: list[Record]


def read_graph(folder: Path, side: str, ignored: Collection[str], *, undirected: bool) -> GraphRecords:
    """From `SIDE.graphml`, or `SIDE_nodes.csv` and `SIDE_edges.csv`. Raises BadInput."""
    graphml, nodes, edges = (folder / f"{side}{end}" for end in (".graphml", "_nodes.csv", "_edges.csv"))
    if graphml.exists() and (nodes.exists() or edges.exists()):
        raise BadInput(f"{folder}: both {graphml.name} and {side}_*.csv are there; remove one of them")
    if graphml.exists():
        return _read_graphml(graphml, ignored, undirected)
    if not nodes.exists():
        raise BadInput(f"{folder}: no graph of the {side} side; give {graphml.name}, or {nodes.name} and {edges.name}")
    return GraphRecords(nodes.name, read_csv(nodes, ("id",), ignored), read_csv(edges, ("source", "target"), ignored))


def read_csv(path: Path, required: tuple[str, ...], ignored: Collection[str] = ()) -> list[Record]:
    """Records of a CSV file with a header; the values of `required` columns are never empty. Raises BadInput."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            _check_header(path, header, required)
            return list(_records(path, reader, required, ignored))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read as CSV in UTF-8: {error}") from error


def _check_header(path: Path, header: list[str], required: tuple[str, ...]) -> None:
    for name in required:
        if name not in header:
            raise BadInput(
                f"{path}: missing column {name!r} in its first line; there are: {', '.join(header) or 'none'}"
            )
    if len(set(header)) < len(header):
        raise BadInput(f"{path}: a column occurs twice in its first line: {', '.join(header)}; rename or remove one")


def _records(
    path: Path, reader: csv.DictReader[str], required: tuple[str, ...], ignored: Collection[str]
) -> Iterator[Record]:
    for row in reader:
        where = f"{path}, row {reader.line_num}"
        if None in row or None in row.values():
            raise BadInput(
                f"{where}: not as many values as there are columns ({len(reader.fieldnames or ())}); correct it"
            )
        values = {name: text.strip() for name, text in row.items() if text.strip() and name not in ignored}
        for name in required:
            if name not in values:
                raise BadInput(f"{where}: no {name}; give one, or remove the row")
        yield Record(where, values)


def _read_graphml(path: Path, ignored: Collection[str], undirected: bool) -> GraphRecords:
    try:
        tags = [e.get("id", "") for e in ElementTree.parse(path).iter() if e.tag.rpartition("}")[2] == "node"]
        graph = nx.read_graphml(path, force_multigraph=True)
    except (OSError, ValueError, KeyError, TypeError, ElementTree.ParseError, nx.NetworkXException) as error:
        raise BadInput(f"{path}: cannot be read as GraphML: {error}") from error
    if twice := [name for name, count in Counter(tags).items() if count > 1]:
        raise BadInput(f"{path}, node {twice[0]!r}: the id occurs twice; ids must differ")
    if undirected and graph.is_directed():
        raise BadInput(f'{path}: the graph is directed; here it must be undirected: set edgedefault="undirected"')
    nodes = [
        Record(f"{path}, node {name!r}", {**_kept(values, ignored), "id": name})
        for name, values in graph.nodes(data=True)
    ]
    edges = [
        Record(f"{path}, edge {i!r} to {k!r}", {**_kept(values, ignored), "source": i, "target": k})
        for i, k, values in graph.edges(data=True)
    ]
    return GraphRecords(path.name, nodes, edges)


def _kept(values: dict[str, Any], ignored: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in {*ignored, "id"}}


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Numbers are written so that they are read back to the bit."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(
            [v if isinstance(v, str) else repr(v.item() if hasattr(v, "item") else v) for v in r] for r in rows
        )
