"""The web page: `uploads`, `work`, `examples` and `render` compute, `gate` guards, `page` has the widgets."""
