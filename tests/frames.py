"""A small data frame, and the ways in which other programs write it."""

import json

import numpy as np
import pandas as pd

N = 40
FRAME = pd.DataFrame(
    {
        "caption": [f"a crème number {i * 7919 % 1000}" for i in range(N)],
        "price": np.random.default_rng(0).normal(size=N).round(3) + 1000,
        "when": pd.date_range("2024-01-01", periods=N).astype(str),
        "age": np.random.default_rng(1).integers(1, 9, N),
    }
)
WRITERS = {
    "a.csv": lambda frame, path: frame.to_csv(path),
    "b.csv": lambda frame, path: frame.to_csv(path, sep=";", decimal=",", index=False),
    "c.tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "d.csv": lambda frame, path: frame.to_csv(path, sep="\t", decimal=","),
    "e.csv": lambda frame, path: frame.to_csv(path, sep="|", index=False),
    "columns.json": lambda frame, path: frame.to_json(path),
    "records.json": lambda frame, path: frame.to_json(path, orient="records"),
    "index.json": lambda frame, path: frame.to_json(path, orient="index"),
    "split.json": lambda frame, path: frame.to_json(path, orient="split"),
    "table.json": lambda frame, path: frame.to_json(path, orient="table"),
    "lists.json": lambda frame, path: path.write_text(json.dumps(frame.to_dict("list"))),
    "lines.json": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "book.xlsx": lambda frame, path: frame.to_excel(path),
    "dates.parquet": lambda frame, path: frame.assign(when=pd.to_datetime(frame["when"])).to_parquet(path),
    "dates.xlsx": lambda frame, path: frame.assign(when=pd.to_datetime(frame["when"])).to_excel(path, index=False),
}
