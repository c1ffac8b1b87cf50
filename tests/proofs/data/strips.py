"""Strips of spaced-out characters by everything in `data` that draws text, in the ways in which programs ask for fonts.

Arguments: the text, and text of code points that have no character. The strips of the latter must be seen as boxes.
"""

import sys
import warnings

import altair as alt
import matplotlib.pyplot as plt
import seaborn as sns
import vl_convert

text, unassigned = sys.argv[1:]


def strip(name, characters, **properties):
    fig = plt.figure(figsize=(len(characters) * 0.8, 0.8), dpi=100)
    for i, c in enumerate(characters):
        fig.text((i + 0.5) / len(characters), 0.5, c, fontsize=24, ha="center", va="center", color="black", **properties)
    fig.savefig(f"/outputs/{name}.png", facecolor="white")
    plt.close(fig)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    strip("boxes-matplotlib", unassigned)
warnings.simplefilter("error")
strip("matplotlib", text)
strip("matplotlib-bold", text, fontweight="bold")
strip("matplotlib-serif", text, family="serif")
strip("matplotlib-monospace", text, family="monospace")
plt.rcParams["font.sans-serif"] = ["SimHei", "Microsoft YaHei"]
plt.rcParams["axes.unicode_minus"] = False
strip("matplotlib-simhei", text)
sns.set_theme()
strip("seaborn", text)
with plt.style.context("default"):
    strip("matplotlib-style", text)


def vega(name, characters):
    data = alt.Data(values=[{"x": i, "c": c} for i, c in enumerate(characters)])
    chart = alt.Chart(data, width=60 * len(characters), height=60).mark_text(fontSize=32, color="black").encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(characters) - 0.5], nice=False)),
        text="c:N",
    ).configure_view(stroke=None)
    with open(f"/outputs/{name}.png", "wb") as file:
        file.write(vl_convert.vegalite_to_png(chart.to_dict(), scale=1))


vega("altair", text)
