"""JSON Schema as values: documents and their subschemas, and the set of JSON values that they allow."""
