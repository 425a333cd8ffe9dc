"""Charts: Vega-Lite specs by Altair, and small handwritten SVG."""
