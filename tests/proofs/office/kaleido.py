"""A plotly chart as PNG by kaleido, which starts the image's Chromium."""

import plotly.graph_objects as go

figure = go.Figure(go.Bar(x=["北京", "上海", "广东"], y=[3, 5, 4]), layout={"title": {"text": "销售额"}, "template": "plotly_white"})
figure.write_image("/outputs/图.png", width=500, height=300)
