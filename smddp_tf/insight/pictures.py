"""The pictures of a report, as SVG: what steps consist of, which rank takes longer, what the hosts use."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from smddp_tf.insight.recording import Numbers, Recording

_POINTS = 240  # columns of a picture at most; each shows a median
_HOSTS = 8  # that are shown
_PARTS = {"computation": "#4c78a8", "input": "#f2a93b", "exposed": "#d6604d"}
_LABELS = {"computation": "computation", "input": "waiting for input", "exposed": "waiting for gradients"}
_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#888", "axes.labelcolor": "#444", "xtick.color": "#444",
    "ytick.color": "#444", "axes.titlesize": 9, "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip


def pictures(recording: Recording) -> dict[str, str]:
    """By title, those for which there is something recorded."""
    with matplotlib.rc_context(_STYLE):
        begin = min(facts["started"] for facts in recording.facts.values())
        found = {}
        if recording.aligned["step"].size:
            found["Steps"] = _steps(recording, begin)
            found["Ranks"] = _ranks(recording)
        if any(table["time"].size for table in recording.hosts.values()):
            found["Hosts"] = _hosts(recording, begin)
        return found


def _steps(recording: Recording, begin: float) -> str:
    figure = Figure((9, 2.8), layout="constrained")
    axes, steps = figure.subplots(), recording.aligned
    time = _points(np.median(steps["time"], axis=0) - begin)
    parts = [1e3 * np.median(_points(steps[name]), axis=0) for name in _PARTS]
    axes.stackplot(time, parts, colors=list(_PARTS.values()), labels=list(_LABELS.values()), alpha=0.9, lw=0)
    axes.plot(time, 1e3 * _points(steps["seconds"].max(0), np.max), color="#222", lw=0.8, label="longest step")
    axes.set(xlabel="seconds since the start", ylabel="ms a step", xlim=(time[0], time[-1]), ylim=(0, None))
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return _svg(figure)


def _ranks(recording: Recording) -> str:
    steps, count = recording.aligned, len(recording.ranks)
    figure = Figure((9, 1.6 + 0.22 * min(count, 32)), layout="constrained")
    bars, map_ = figure.subplots(1, 2, width_ratios=(1, 2), sharey=True)
    left, rows = np.zeros(count), np.arange(count)
    for name, colour in _PARTS.items():
        width = 1e3 * np.median(steps[name], axis=1)
        bars.barh(rows, width, left=left, color=colour, label=_LABELS[name])
        left += width
    own = _points(steps["own"])
    excess = 100 * (own / np.percentile(own, 50, axis=0, method="lower") - 1)
    image = map_.imshow(
        excess, aspect="auto", cmap="RdBu_r", vmin=-50, vmax=50, interpolation="nearest",
        extent=(steps["step"][0], steps["step"][-1], count - 0.5, -0.5),
    )  # fmt: skip
    figure.colorbar(image, label="% longer than the others")
    names = [f"{rank} on {recording.facts[rank]['host']}" for rank in recording.ranks]
    bars.set_yticks(rows[:: -(-count // 32)], names[:: -(-count // 32)])
    bars.set(xlabel="ms, median step", title="rank", ylim=(count - 0.5, -0.5))
    map_.set(xlabel="step", title="own time: computation and input")
    return _svg(figure)


def _hosts(recording: Recording, begin: float) -> str:
    shown = dict(list(recording.hosts.items())[:_HOSTS])
    figure = Figure((9, 0.4 + 1.5 * len(shown)), layout="constrained")
    for axes, (host, table) in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown.items()):
        gpus = {f"GPU {gpu}": samples for gpu, samples in enumerate(table["gpu"].T)}
        memory = 100 * table["memory"] / table["memory_total"]
        used = {"CPU": table["cpu"].mean(1), "waiting for disks": table["iowait"], "memory": memory, **gpus}
        for name, samples in used.items():
            axes.plot(_points(table["time"] - begin), _points(samples), lw=1.2, label=name)
        axes.set(title=host, ylabel="%", ylim=(0, 103))
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_xlabel("seconds since the start")
    return _svg(figure)


def _points(rows: Numbers, of: Any = np.median) -> Numbers:
    """The last dimension in at most so many parts."""
    parts = np.array_split(rows, min(_POINTS, rows.shape[-1]), axis=-1)
    return np.stack([of(part, axis=-1) for part in parts], axis=-1)


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()[file.getvalue().index("<svg") :]
