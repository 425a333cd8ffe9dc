"""Pictures: Vega-Lite specs by Altair, and small SVG drawn by hand."""
