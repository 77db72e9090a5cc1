"""The web page: `jobs` computes, `uploads` and `middleware` guard, `service` connects them to the widgets in `page`."""
