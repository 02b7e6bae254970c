"""Few labels on signals of six channels (Table 3)."""
